"""What is counted in XLA's modules, on a text of its own making."""

from pathlib import Path

from tfbench.metrics import hlo

TEXT = (Path(__file__).parents[1] / "data" / "softmax_hlo.txt").read_text()


def test_what_runs_is_counted_and_what_is_inside_of_it_is_not():
    assert hlo.counts([TEXT]) == {
        "xla_kernels": {"copy": 1, "custom-call __onednn$matmul": 1, "fusion Loop": 2, "reduce": 1},
        "xla_fusions": {"Loop": 2},
        "xla_custom_calls": {"__onednn$matmul": 1},
        "xla_casts": {"to f64": 1},
        "xla_float64": {"convert": 1, "fusion": 1},
    }


def test_several_modules_are_counted_together():
    assert hlo.counts([TEXT, TEXT])["xla_fusions"] == {"Loop": 4}
    assert hlo.counts([])["xla_kernels"] == {}


def test_a_fusion_names_its_computation():
    fusion = next(one for one in hlo.kernels(hlo.instructions(TEXT)) if one.op == "fusion")
    assert hlo.called(fusion) == "fused_computation"


def test_temporary_bytes_are_those_of_the_temporary_allocations():
    text = """BufferAssignment:
allocation 0: size 524288, maybe-live-out:
 value: <42 wrapped_compare @0> (size=1,offset=0): pred[]
allocation 16: size 4, thread-local:
allocation 17: size 525328, preallocated-temp:
 value: <36 broadcast_multiply_fusion @0> (size=262144,offset=262144): f32[256,256]{1,0}
"""
    assert hlo.temporary_bytes(text) == 525328
    assert hlo.temporary_bytes("") == 0
