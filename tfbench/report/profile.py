"""Words about profiles and attributed slowdowns."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group
from rich.text import Text

from tfbench.metrics.exact import MetricChange
from tfbench.model import JSON
from tfbench.model.words import duration, percent, signed
from tfbench.profiles.attribution import HALF, Attribution, Cause, StepBreakdown, TimeCategory, must_show, of_slowdown
from tfbench.report.screen import add_row, folded, right, table
from tfbench.untrusted import some

# Explain a case: the causes of a slowdown, for an assertion and a terminal, and the changes of its graphs


MOST = 5
"""Lines on profiles in an assertion."""
_KINDS = 3
"""Ops that a line names."""
NO_CAUSE = "no cause found: the differences of the profiles do not add up to half of the slowdown"


def changes_of(title: str, metrics: Sequence[MetricChange], notes: Sequence[str]) -> Group:
    """Render the changes of a case's graphs and exact metrics between two sides, which ``title`` names.

    ``notes`` are comparisons that were impossible, and other differences between the sides.
    """
    made = table("", "metric", *right("before", "now"), *folded("what"))
    for change in metrics:
        add_row(made, *change.cells)
    changed = made if metrics else Text("no change: every exact metric is the same")
    return Group(Text(title, "bold"), changed, *map(Text, notes))


def attributed(attribution: Attribution | None, why: Sequence[str]) -> Group:
    """Render the long form for a terminal: the lines of the assertion, and each category of time."""
    lines = [Text(line) for line in why]
    if attribution is None:
        return Group(*lines)
    categories = table("Time per step", "category", *right("before", "now", "change"))
    spent = [(str(category), before, now) for category, before, now in attribution.spent if max(before, now) > 0]
    for name, before, now in (*spent, ("a step", attribution.before, attribution.now)):
        change = f"{'-' if now < before else '+'}{duration(abs(now - before))}"
        add_row(categories, name, duration(before), duration(now), change)
    return Group(*lines, categories)


def in_words(attribution: Attribution, raced: float | None) -> list[str]:
    """Describe how the steps of two profiles differ, and the causes, for the text of an assertion.

    ``raced`` is the raced slowdown as a fraction, ``None`` without a race.
    """
    causes = op_lines(attribution, raced) if attribution.now > attribution.before else []
    return [steps_line(attribution, raced), *(f"  {line}" for line in causes or [NO_CAUSE])]


def steps_line(attribution: Attribution, raced: float | None) -> str:
    """Say how the steps of two profiles differ, beside the raced slowdown."""
    before, now = map(duration, (attribution.before, attribution.now))
    both = signed(attribution.now / attribution.before - 1) + (f", raced: {signed(raced)}" if raced is not None else "")
    most = f"; {attribution.spent[0][0]} grew most" if attribution.now > attribution.before else ""
    return f"profile: a step takes {now} instead of {before} ({both}){most}"


def op_lines(attribution: Attribution, raced: float | None = None) -> list[str]:
    """Return the kinds of work that hold at least half of the slowdown together, at most three.

    There are none if the profiles do not show the raced slowdown, or if it lies outside of ops.
    """
    if attribution.now - attribution.before < must_show(raced) * attribution.before:
        return []
    causes = [cause for cause in attribution.causes if cause.category is not TimeCategory.OTHER][:3]
    if sum(cause.share for cause in causes) < HALF:
        return []
    return [f"op: {describe_cause(cause, attribution, raced)}" for cause in causes]


def describe_cause(cause: Cause, attribution: Attribution, raced: float | None = None) -> str:
    """Describe a cause: ``MatMul +1.20 ms per profiled step, 97% of its slowdown: 2 calls instead of 1 (MatMul_1)``.

    ``raced`` is the raced slowdown as a fraction, to say beside that of the profiles.
    """
    share = of_slowdown(cause.share, attribution.now / attribution.before - 1, raced)
    size = f"+{duration(cause.grew)} per profiled step, {share}"
    kinds = some(cause.kinds, _KINDS)
    if cause.after == "fused":
        return f"lost fusion: {kinds} instead of {some(cause.instead, _KINDS)} {size}"
    if cause.after == "compiled":
        return f"no longer compiled by XLA: {kinds} {size}"
    text = kinds if cause.category is TimeCategory.HOST else f"{cause.category}: {kinds}"
    before, now = cause.calls
    why = ""
    if now > before + 0.5:
        why = f": {now:g} calls instead of {before:g}" if before else ": new"
        why += f" ({some(cause.new[:2], _KINDS)})" if cause.new and (before or cause.new[0] != cause.kinds[0]) else ""
    return f"{text} {size}{why}"


# The steps of one side: a table for a terminal, and JSON for a report


def one_side(title: str, breakdown: StepBreakdown) -> Group:
    """Render the steps of a profile: the time of each category, and the share of the input."""
    content = content_of(breakdown)
    kinds = table("Time per step", "category", *right("time", "share"))
    for name, seconds in (*content["time"].items(), ("a step", content["step"])):
        add_row(kinds, name, duration(seconds), percent(seconds / content["step"]))
    waiting = content["time"].get(TimeCategory.INPUT, 0.0) / content["step"]
    return Group(Text(title, "bold"), Text(f"{waiting:.1%} of a step waits for input"), kinds)


def content_of(breakdown: StepBreakdown) -> JSON:
    """Return the steps of one side for JSON. Times are seconds per step."""
    spent = sorted(((breakdown.spent(category), str(category)) for category in TimeCategory), reverse=True)
    return {"step": breakdown.seconds, "time": {name: seconds for seconds, name in spent if seconds}}
