"""The causes of a change: what is named, with which share, and where none is."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from tfbench.errors import SideError
from tfbench.metrics.exact import MetricChange
from tfbench.model import Case, Ratio
from tfbench.policy import preset
from tfbench.profiles.attribution import Attribution, Cause, TimeCategory
from tfbench.protocol import Sampled
from tfbench.race.launch import Entrant
from tfbench.report.profile import NO_CAUSE, op_lines
from tfbench.session import profiling
from tfbench.session.profiling import (
    Explained,
    Explainer,
    Explanation,
    ops_changed,
    traced_again,
)
from tfbench.sides.spec import Side

CASE = Case("w.py::w", "w", "w.py::w")
SIDES = (
    Entrant(CASE, Side("2.20", "python", Path("/"), "2.20")),
    Entrant(CASE, Side("2.21", "python", Path("/"), "2.21")),
)


def explanation(*metrics, results=()):
    return Explanation([MetricChange(*metric) for metric in metrics], results, [])


def cause(share, kind="Sum", category=TimeCategory.HOST):
    return Cause(category, (kind,), (), 0.01 * share, share, (0.0, 1.0))


def attribution(*causes):
    return Attribution(0.001, 0.011, causes, ((TimeCategory.HOST, 0.001, 0.011),))


def ratio(center):
    return Ratio(center, center / 1.02, center * 1.02, 0.95)


def python(seconds, functions):
    return Sampled(
        10, 10 * seconds, 1000, {name: (count, depth * count) for name, (count, depth) in functions.items()}, {}
    )


@pytest.fixture
def explain(monkeypatch):
    """Explain a change by scripted profiles, in which side ``before`` and ``now`` have these samples."""

    def answer(found, slowdown, before=None, now=None, metric="time", evidence=None, defaults=None):
        profiles = iter([before or python(1e-3, {}), now or python(1e-3, {})])
        asked = []

        def take(profiler, entrants, *_):
            asked.extend(entrant.side.name for entrant in entrants.values())
            return Explained(None, {}, found, ())

        monkeypatch.setattr(profiling, "take", take)
        monkeypatch.setattr(profiling, "sample", lambda *given, **named: next(profiles))
        launcher = SimpleNamespace(start_pairs=lambda *given: None)
        explainer = Explainer(launcher, preset("quick"), defaults=defaults)
        return list(explainer.explain(SIDES, metric, ratio(slowdown), evidence).lines), asked

    return answer


def test_an_op_that_holds_half_of_the_slowdown_is_the_cause_and_python_is_not_sampled(explain):
    (line,), asked = explain(attribution(cause(0.9)), 3.0)
    assert line.startswith("op: Sum +9.00 ms per profiled step, 90% of its slowdown")
    assert asked == ["2.20", "2.21"]


def test_a_python_function_is_the_cause_where_ops_are_none(explain):
    now = python(4e-3, {"w.step": (1000, 0), "w.prepare": (900, 1)})
    (line,), _ = explain(attribution(cause(0.2)), 3.0, python(1e-3, {"w.step": (1000, 0), "w.prepare": (500, 1)}), now)
    assert line.startswith("Python: w.prepare takes 3.60 ms of a sampled call of 4.00 ms")


@pytest.mark.parametrize(
    "functions",
    [
        {"lite.Interpreter.invoke": (1000, 0)},  # the step itself
        {"w.step": (1000, 0), "tensorflow.lite.python.interpreter.Interpreter.invoke": (990, 1)},
        {"w.step": (1000, 0), "ai_edge_litert.interpreter.Interpreter.invoke": (990, 1)},
    ],
)
def test_neither_the_step_nor_an_interpreter_that_it_calls_is_a_cause(explain, functions):
    before, now = (python(seconds, functions) for seconds in (1e-3, 4e-3))
    assert explain(attribution(cause(0.2)), 3.0, before, now)[0] == [NO_CAUSE]


def test_changes_of_graphs_alone_are_listed_below_that_no_cause_was_found(explain):
    counts = {"lost": {"MatMul": 1}, "gained": {"Sum": 1}}
    lines, _ = explain(None, 1.4, evidence=explanation(("graph_ops", "", 54, 61, counts)))
    assert lines == [NO_CAUSE, "graph: 54 ops before, 61 now; lost MatMul; gained Sum"]


def test_a_default_is_a_cause_from_half_of_the_slowdown_on(explain):
    def defaults(share):
        return lambda sides, slowdown: [(share, "default: a")]

    evidence = explanation()
    assert explain(None, 2.0, evidence=evidence, defaults=defaults(0.9))[0] == ["default: a"]
    assert explain(None, 2.0, evidence=evidence, defaults=defaults(0.3))[0] == [NO_CAUSE, "default: a"]
    other_graph = explanation(("fused_ops", "", 1, 0, {}))
    assert explain(None, 2.0, evidence=other_graph, defaults=defaults(0.9))[0] == [NO_CAUSE]

    def unreadable(sides, slowdown):
        raise SideError("prints no flags")

    assert explain(None, 2.0, evidence=evidence, defaults=unreadable)[0] == [NO_CAUSE, "defaults: prints no flags"]


def test_what_is_faster_is_explained_by_what_is_slower_on_the_first_side(explain):
    (line,), asked = explain(attribution(cause(0.9)), 0.5)
    assert line.startswith("on 2.20: op: Sum")
    assert asked == ["2.21", "2.20"]


def test_a_count_is_explained_by_what_it_counts(explain):
    found = explanation(("graph_ops", "", 1, 2, {"gained": {"Sum": 1}}))
    assert explain(None, 2.0, metric="graph_ops", evidence=found)[0] == ["graph: 1 op before, 2 now; gained Sum"]


def test_ops_are_named_if_they_hold_half_of_the_slowdown():
    lines = op_lines(attribution(cause(0.7), cause(0.2, "BatchMatMulV2")))
    assert [line.split()[:2] for line in lines] == [["op:", "Sum"], ["op:", "BatchMatMulV2"]]
    assert op_lines(attribution(cause(0.3), cause(0.1, "Mul"))) == []
    assert op_lines(attribution(cause(0.9, "", TimeCategory.OTHER))) == []
    hidden = Attribution(0.0010, 0.0011, (cause(0.9),), ())
    assert op_lines(hidden, raced=0.5) == []


def test_a_function_that_is_traced_in_every_call_is_a_retrace():
    line = traced_again(
        explanation(("graph_ops", "", 3, 4, {}), ("retraces_per_call", "", 0, 1, {"gained": {"step": 1}}))
    )
    assert line == ["retrace: 1 per call, 0 before; gained step"]
    assert traced_again(explanation(("retraces_per_call", "", 1, 0, {}))) == []


def test_changes_of_kernels_and_ops_are_lines():
    kernels = explanation(("xla_kernels", "", 1, 13, {"lost": {"custom-call softmax": 1}}))
    assert ops_changed(kernels) == ["XLA: 1 kernel before, 13 now; lost custom-call softmax"]
    counts = {"gained": {"Enter": 60, "NextIteration": 58}}
    assert ops_changed(explanation(("graph_ops", "", 53, 436, counts), ("casts", "", 0, 1, {"gained": {"x": 1}}))) == [
        "while loop: 53 ops before, 436 now; gained 60 Enter, 58 NextIteration"
    ]
