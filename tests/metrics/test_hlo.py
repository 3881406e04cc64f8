"""Counts of XLA's modules, extracted from a text that XLA wrote."""

from pathlib import Path

from tfbench.metrics import graphs
from tfbench.metrics.catalog import read
from tfbench.metrics.parity import ProbeOutput

TEXT = (Path(__file__).parents[1] / "data" / "softmax_hlo.txt").read_text()


def counts(*modules):
    return read(ProbeOutput({"xla": {}}, {}, modules=modules)).counts


def test_kernels_are_counted_and_the_instructions_inside_them_are_not():
    assert counts(TEXT) == {
        "xla_kernels": {"copy": 1, "custom-call __onednn$matmul": 1, "fusion Loop": 2, "reduce": 1},
        "xla_casts": {"to f64": 1},
        "xla_float64": {"convert": 1, "fusion": 1},
    }


def test_several_modules_are_counted_together():
    assert counts(TEXT, TEXT)["xla_kernels"]["fusion Loop"] == 4
    assert counts()["xla_kernels"] == {}


def test_temporary_bytes_are_those_of_the_temporary_allocations():
    text = """BufferAssignment:
allocation 0: size 524288, maybe-live-out:
 value: <42 wrapped_compare @0> (size=1,offset=0): pred[]
allocation 16: size 4, thread-local:
allocation 17: size 525328, preallocated-temp:
 value: <36 broadcast_multiply_fusion @0> (size=262144,offset=262144): f32[256,256]{1,0}
"""
    assert graphs.temporary_bytes([text]) == 525328
    assert graphs.temporary_bytes([text, text]) == 2 * 525328
    assert graphs.temporary_bytes([""]) == 0
    assert graphs.temporary_bytes([]) is None


TUNED = """ENTRY %main (a: f32[8,8], b: f32[8,8]) -> f32[8,8] {
  %a = f32[8,8]{1,0} parameter(0)
  %b = f32[8,8]{1,0} parameter(1)
  %custom-call.1 = (f32[8,8]{1,0}, s8[4]{0}) custom-call(%a, %b), custom_call_target="__cublas$gemm", backend_config={"operation_queue_id":"0","gemm_backend_config":{"alpha_real":1,"precision_config":{"operand_precision":["DEFAULT"],"algorithm":"ALG_UNSET"},"selected_algorithm":"18","epilogue":"DEFAULT"}}
  %cudnn-conv.1 = (f32[8,8]{1,0}, u8[0]{0}) custom-call(%a, %b), custom_call_target="__cudnn$convForward", backend_config={"cudnn_conv_backend_config":{"activation_mode":"kNone","algorithm":{"algo_id":"28","math_type":"TENSOR_OP_MATH","tuning_knobs":{"2":"3","3":"0"}}}}
  %fusion.1 = f32[8,8]{1,0} fusion(%a, %b), kind=kCustom, calls=%inner, backend_config={"fusion_backend_config":{"kind":"__triton_gemm","triton_gemm_config":{"block_m":"64","block_n":"32"}}}
  ROOT %add.1 = f32[8,8]{1,0} add(%a, %b)
}
"""


def test_what_xla_has_chosen_for_a_gpu_is_counted_by_kernel():
    assert counts(TUNED)["xla_algorithms"] == {
        "custom-call __cublas$gemm 18": 1,
        "custom-call __cudnn$convForward {algo_id:28,math_type:TENSOR_OP_MATH,tuning_knobs:{2:3,3:0}}": 1,
        "fusion Custom {block_m:64,block_n:32}": 1,
    }
    assert "xla_algorithms" not in counts(TEXT)
