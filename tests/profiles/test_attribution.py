"""The causes of a slowdown, on scripted steps."""

import pytest

from tests.fakes.profiles import Built
from tfbench.profiles.attribution import (
    Key,
    StepBreakdown,
    StepSlice,
    TimeCategory,
    attribute,
    faster_half,
    step_slices,
    trimmed,
)
from tfbench.profiles.xplane import load, steps_of
from tfbench.report.profile import NO_CAUSE, in_words

MS = 1_000_000_000


def steps(milliseconds, *ran, count=4):
    """Build identical steps of ``(key, name, from, to)`` in milliseconds."""
    step_slice = StepSlice(milliseconds * 1e-3, {}, {}, {})
    for key, name, start, end in ran:
        step_slice.spans.setdefault(key, []).append((round(start * MS), round(end * MS)))
        step_slice.counts[key] = step_slice.counts.get(key, 0) + 1
        step_slice.names.setdefault(key, {})[name] = end - start
    return StepBreakdown([step_slice] * count)


def op(kind, start, end, name="", compiled=False):
    return Key(TimeCategory.HOST, kind, compiled), name or kind, start, end


def waiting(stage, start, end):
    return Key(TimeCategory.INPUT, stage), stage, start, end


def explained(before, now, raced=None):
    found = attribute(before, now)
    return found, in_words(found, raced)


def test_a_doubled_op_is_named_with_its_new_name():
    before = steps(3, op("MatMul", 0, 1), op("Relu", 1, 1.5))
    now = steps(4, op("MatMul", 0, 1), op("Relu", 1, 1.5), op("MatMul", 2, 3, "MatMul_1"))
    found, lines = explained(before, now, raced=0.3)
    assert [cause.share for cause in found.causes] == pytest.approx([1])
    assert lines == [
        "profile: a step takes 4.00 ms instead of 3.00 ms (+33%, raced: +30%); host compute grew most",
        "  op: MatMul +1.00 ms per profiled step, 100% of its slowdown (+33%, raced: +30%): 2 calls instead of 1 (MatMul_1)",
    ]


def test_a_lost_fusion_is_one_cause():
    before = steps(1, op("_FusedMatMul", 0, 0.5, "Relu"))
    now = steps(1.2, op("MatMul", 0, 0.4), op("BiasAdd", 0.4, 0.6), op("Relu", 0.6, 0.7))
    found, lines = explained(before, now)
    (cause,) = found.causes
    assert (cause.instead, cause.grew) == (("_FusedMatMul",), pytest.approx(0.2e-3))
    assert lines[1] == (
        "  op: lost fusion: MatMul, BiasAdd, Relu instead of _FusedMatMul +200 µs per profiled step, 100% of its slowdown"
    )


def test_a_fused_op_with_fewer_calls_is_not_a_lost_fusion():
    before = steps(2, op("_FusedMatMul", 0, 1), op("_FusedMatMul", 1, 2))
    now = steps(3, op("_FusedMatMul", 0, 1), op("Transpose", 1, 3))
    found, _ = explained(before, now)
    assert [cause.kinds for cause in found.causes] == [("Transpose",)]


def test_code_that_is_no_longer_compiled_is_one_cause():
    before = steps(1, op("dot", 0, 0.5, "dot.3", compiled=True), op("add_fusion", 0.5, 0.6, compiled=True))
    now = steps(2, op("MatMul", 0, 1), op("AddV2", 1, 1.6))
    found, lines = explained(before, now)
    assert found.causes[0].after == "compiled"
    assert "no longer compiled by XLA: MatMul, AddV2 +1.00 ms" in lines[1]


def test_the_category_that_grew_most_comes_first():
    found, lines = explained(
        steps(2, op("MatMul", 0, 2)), steps(5, op("MatMul", 0, 2), waiting("IteratorGetNext", 2, 5))
    )
    assert found.spent[0] == (TimeCategory.INPUT, 0.0, pytest.approx(3e-3))
    assert "; waiting for input grew most" in lines[0]
    assert lines[1] == "  op: waiting for input: IteratorGetNext +3.00 ms per profiled step, 100% of its slowdown: new"


def test_time_outside_of_ops_is_no_cause():
    found, lines = explained(steps(1, op("MatMul", 0, 0.9)), steps(2, op("MatMul", 0, 0.9)))
    assert found.causes[0].category is TimeCategory.OTHER
    assert lines == [
        "profile: a step takes 2.00 ms instead of 1.00 ms (+100%); outside of ops grew most", f"  {NO_CAUSE}",
    ]  # fmt: skip


def test_profiles_that_do_not_show_the_slowdown_name_no_cause():
    _, lines = explained(steps(1, op("MatMul", 0, 1)), steps(1.01, op("MatMul", 0, 1.01)), raced=0.1)
    assert lines == [
        "profile: a step takes 1.01 ms instead of 1.00 ms (+1.0%, raced: +10%); host compute grew most",
        f"  {NO_CAUSE}",
    ]
    _, lines = explained(steps(2), steps(1), raced=0.39)
    assert lines == ["profile: a step takes 1.00 ms instead of 2.00 ms (-50%, raced: +39%)", f"  {NO_CAUSE}"]


def test_disturbed_steps_and_launches_are_left_out():
    launch = [StepSlice(seconds, {}, {}, {}) for seconds in (5, 1, 2, 3, 4)]
    assert [step_slice.seconds for step_slice in trimmed(launch)] == [1, 2, 3, 4]
    assert len(trimmed(launch[:1])) == 1
    assert faster_half([[StepSlice(s, {}, {}, {})] for s in (9, 1, 2)]).seconds == pytest.approx(1.5)


def microseconds(breakdown):
    return {key.kind: round(part.seconds * 1e6) for key, part in breakdown.parts.items()}


class TestStepSlices:
    """Events become kinds of work."""

    def breakdown(self, tmp_path, build):
        built = Built()
        plane, line = built.steps(3, 1000)
        for number in range(3):
            build(built, plane, line, number * 1000)
        space = load(built.write(tmp_path))
        return StepBreakdown(step_slices(space, steps_of(space)))

    def test_graph_ops_eager_ops_and_compiled_ones(self, tmp_path):
        def build(built, plane, line, at):
            built.event(plane, line, "model/Relu:Relu", at + 10, 50, kind="Relu")
            built.event(plane, line, "EagerLocalExecute: MatMul", at + 100, 90)
            built.event(plane, line, "EagerKernelExecute", at + 110, 70)
            built.event(plane, line, "fusion.3", at + 200, 40, hlo_op="fusion.3", hlo_module="m")
            built.event(plane, line, "end: fusion.3", at + 240, 1, hlo_op="fusion.3")
            built.event(plane, line, "__inference_f_1:__inference_f_1", at + 5, 800, kind="__inference_f_1")
            built.event(plane, line, "std::vector:name", at + 300, 100)

        found = self.breakdown(tmp_path, build)
        assert microseconds(found) == {"Relu": 50, "MatMul": 70, "fusion": 40}
        assert found.spent(TimeCategory.OTHER) == pytest.approx(740e-6)
        assert found.parts[Key(TimeCategory.HOST, "Relu")].names == ("model/Relu",)

    def test_an_op_includes_the_executors_work_after_it(self, tmp_path):
        def build(built, plane, line, at):
            built.event(plane, line, "ExecutorState::Process", at + 100, 400)
            built.event(plane, line, "x:MatMul", at + 110, 100, kind="MatMul")
            built.event(plane, line, "y:Relu", at + 260, 100, kind="Relu")

        found = self.breakdown(tmp_path, build)
        assert microseconds(found) == {"MatMul": 150, "Relu": 240}

    def test_the_functions_of_an_input_count_as_waiting_alone(self, tmp_path):
        def build(built, plane, line, at):
            built.event(plane, line, "EagerLocalExecute: IteratorGetNext", at + 10, 500)
            built.event(plane, line, "EagerKernelExecute", at + 20, 480)
            built.event(plane, line, "Iterator::Root", at + 50, 400, id=1)
            built.event(plane, line, "Iterator::Root::Map", at + 60, 380, id=2, parent_id=1)
            built.event(plane, line, "InstantiatedCapturedFunction::Run", at + 70, 360, id=at + 5)
            built.event(plane, line, "ExecutorState::Process", at + 600, 340, id=at + 5)
            built.event(plane, line, "Cast:Cast", at + 610, 300, kind="Cast")

        found = self.breakdown(tmp_path, build)
        assert microseconds(found) == {"IteratorGetNext": 480}
        assert found.spent(TimeCategory.INPUT) == pytest.approx(480e-6)

    def test_the_body_of_a_loop_over_a_dataset_is_not_input(self, tmp_path):
        def build(built, plane, line, at):
            loop = "ReduceIterator::Root"
            built.event(plane, line, loop, at + 10, 900, id=1)
            built.event(plane, line, f"{loop}::Scan", at + 10, 900, id=2, parent_id=1)
            built.event(plane, line, f"{loop}::Scan::Map", at + 20, 300, id=3, parent_id=2)
            built.event(plane, line, "InstantiatedCapturedFunction::Run", at + 400, 500, id=at + 5)
            built.event(plane, line, "ExecutorState::Process", at + 410, 480, id=at + 5)
            built.event(plane, line, "Cast:Cast", at + 420, 400, kind="Cast")

        found = self.breakdown(tmp_path, build)
        assert found.spent(TimeCategory.INPUT) == pytest.approx(300e-6)
        assert found.spent(TimeCategory.HOST) == pytest.approx(470e-6)

    def test_an_op_of_onednn_counts_as_the_op_that_it_replaces(self, tmp_path):
        def build(built, plane, line, at):
            for place, kind in enumerate(("_MklMatMul", "_MklNativeFusedConv2D", "_MklNativeSoftmax", "_FusedMatMul")):
                built.event(plane, line, f"a:{kind}", at + 10 * place, 5, kind=kind)

        kinds = {key.kind for key in self.breakdown(tmp_path, build).parts}
        assert kinds == {"MatMul", "_FusedConv2D", "Softmax", "_FusedMatMul"}

    def test_tracing_and_compiling(self, tmp_path):
        def build(built, plane, line, at):
            built.event(plane, line, "step_function", at + 10, 500, tf_function_call="traced-nonXla")
            built.event(plane, line, "XlaCompile:#x#", at + 600, 100)

        found = self.breakdown(tmp_path, build)
        assert found.spent(TimeCategory.COMPILE) == pytest.approx(600e-6)
