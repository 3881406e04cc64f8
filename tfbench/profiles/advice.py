"""Suggest fixes from a profile, each with its evidence and the benchmark of this suite that measures it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tfbench.policy import Policy
from tfbench.profiles.bottleneck import Bottlenecks, fix, is_overhead
from tfbench.profiles.op_stats import Kernel
from tfbench.profiles.overview import Overview
from tfbench.profiles.step_breakdown import StepBreakdown, TimeCategory
from tfbench.profiles.tables import Section, column, table_of


@dataclass(frozen=True, slots=True)
class Advice:
    """One suggestion."""

    finding: str = field(metadata=column("finding"))
    """In a word, such as ``input-bound``."""
    evidence: str = field(metadata=column("evidence"))
    fix: str = field(metadata=column("fix"))
    benchmark: str = field(metadata=column("measured by"))
    """The benchmark that measures the fix. ``pytest --benchmark FILE::FUNCTION`` runs it."""


@dataclass(frozen=True)
class Seen:
    """Results of the tools, ``None`` where a tool failed."""

    breakdown: StepBreakdown | None = None
    data: Bottlenecks | None = None
    overview: Overview | None = None
    kernels: Sequence[Kernel] = ()


def advice(seen: Seen, policy: Policy) -> tuple[Sequence[Advice], Section]:
    """Apply all rules, in their order."""
    rules = (_input_bound, _launch_bound, _precision, _transposes)
    found = [one for rule in rules for one in rule(seen, policy)]
    if not found:
        return (), Section("advice", notes=("no rule applies: input, launches, precision and layout look fine",))
    return found, Section("advice", (table_of("advice", "Suggestions", Advice, found),))


def _input_bound(seen: Seen, policy: Policy) -> Iterator[Advice]:
    if seen.data is None or seen.data.waiting < policy.input_bound:
        return
    if (end := next(filter(None, (pipeline.bottleneck for pipeline in seen.data.pipelines)), None)) is not None:
        small = is_overhead(end, policy.slow_call_seconds)
        yield Advice(
            "input-bound",
            f"{seen.data.waiting:.0%} of step time is spent waiting for input, most of it for {end.path}",
            fix(end, policy.slow_call_seconds),
            _SMALL if small else _BY_STAGE.get(end.kind, "benchmarks/test_pipelines.py::test_fed_training"),
        )


_SMALL = "benchmarks/test_pipelines.py::test_pipeline_small_records"
_BY_STAGE = {
    "Map": "benchmarks/test_pipelines.py::test_pipeline_waiting",
    "ParallelMapV2": _SMALL,
    **dict.fromkeys(
        ("InterleaveV2", "Interleave", "FlatMap", "TFRecord"), "benchmarks/test_pipelines.py::test_reading"
    ),
    **dict.fromkeys(("Shuffle", "ShuffleAndRepeat"), "benchmarks/test_pipelines.py::test_shuffle"),
}
"""Kind of stage that is the bottleneck -> the benchmark that measures its fix."""


def _launch_bound(seen: Seen, policy: Policy) -> Iterator[Advice]:
    if (steps := seen.breakdown) is None:
        return
    share = (steps.spent(TimeCategory.LAUNCH) + steps.spent(TimeCategory.OTHER)) / steps.seconds
    if share >= policy.launch_bound:
        computing = (TimeCategory.HOST, TimeCategory.DEVICE)
        ops = sum(part.calls for key, part in steps.parts.items() if key.category in computing)
        yield Advice(
            "launch-bound",
            f"{share:.0%} of a step is neither an op nor waiting, but Python and the dispatch of {ops:.0f} ops",
            "use tf.function with jit_compile=True, a larger batch, or several steps per call (steps_per_execution)",
            "benchmarks/test_training.py::test_execution",
        )


def _precision(seen: Seen, policy: Policy) -> Iterator[Advice]:
    share = seen.overview.sixteen_bit if seen.overview else None
    if share is not None and share < policy.sixteen_bit and any(kernel.eligible for kernel in seen.kernels):
        yield Advice(
            "no 16 bit",
            f"{share:.1%} of device time is in 16 bit, and the device has Tensor Cores",
            "use mixed_float16 or mixed_bfloat16, with dimensions that are multiples of 8",
            "benchmarks/test_linear.py::test_matmul",
        )


def _transposes(seen: Seen, policy: Policy) -> Iterator[Advice]:
    if (steps := seen.breakdown) is None:
        return
    keys = [key for key in steps.parts if "transpose" in key.kind.lower() and "conv" not in key.kind.lower()]
    share = steps.covered(keys) / steps.seconds
    if share >= policy.transposing:
        calls = sum(steps.parts[key].calls for key in keys)
        yield Advice(
            "transposes",
            f"{calls:.0f} transposes take {share:.0%} of a step",
            "keep one layout throughout: NHWC on CPUs, and the layout that the convolutions prefer on GPUs",
            "benchmarks/test_convolution.py::test_conv2d_3x3",
        )
