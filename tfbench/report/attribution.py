"""What a slowdown is made of, in words."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from tfbench.profiles.attribution import Attribution, Cause
from tfbench.profiles.step_breakdown import TimeCategory
from tfbench.report.style import table
from tfbench.report.units import duration


def attributed(attribution: Attribution | None, why: Sequence[str]) -> RenderableType:
    """The long form for a terminal: the lines of the assertion, where time moved to, and every cause."""
    parts: list[RenderableType] = [Text(line) for line in why]
    if attribution is None:
        return Group(*parts)
    moved = table("Where it grew, a step")
    moved.add_column("kind of time", no_wrap=True)
    for heading in ("before", "now", "change"):
        moved.add_column(heading, justify="right", no_wrap=True)
    for category, before, now in attribution.spent:
        if max(before, now) > 0:
            moved.add_row(Text(str(category)), *map(Text, (_time(before), _time(now), _signed(now - before))))
    moved.add_row("a step", *map(Text, (_time(attribution.before), _time(attribution.now), _signed(attribution.grew))))
    parts.append(moved)
    if attribution.causes:
        causes = table(f"What grew: {attribution.explained:.0%} of the slowdown")
        for heading in ("what", "where"):
            causes.add_column(heading, overflow="fold")
        for heading in ("change", "of it", "calls before", "now"):
            causes.add_column(heading, justify="right", no_wrap=True)
        causes.add_column("new", overflow="fold")
        for cause in attribution.causes:
            causes.add_row(
                Text(_what(cause)), Text(str(cause.category)), Text(_signed(cause.grew)), Text(f"{cause.share:.0%}"),
                *(Text(f"{calls:g}") for calls in cause.calls), Text(_listed(cause.new)),
            )  # fmt: skip
        parts.append(causes)
    return Group(*parts)


def _time(seconds: float) -> str:
    return duration(seconds) if seconds > 0 else "0"


def _signed(seconds: float) -> str:
    return f"{'-' if seconds < 0 else '+'}{_time(abs(seconds))}"


def _what(cause: Cause) -> str:
    if cause.instead:
        return f"{_listed(cause.kinds)} instead of {_listed(cause.instead)} ({_ENDED[cause.after]})"
    return _listed(cause.kinds) or str(cause.category)


MOST = 5
"""Lines that an assertion gets of a profile."""
_ENDED = {"fused": "lost fusion", "compiled": "no longer compiled"}


def in_words(attribution: Attribution, raced: float | None, enough: float, most: int = MOST) -> list[str]:
    """At most so many lines for the text of an assertion.

    Args:
        raced: The slowdown that was raced, as a fraction; ``None`` if there was none.
        enough: The part of it that the profiles must show to explain it.
    """
    before, now = (f"{seconds * 1e3:.3g} ms" for seconds in (attribution.before, attribution.now))
    grew = attribution.grew
    if raced is not None and grew < enough * raced * attribution.before:
        change = grew / attribution.before
        return [
            f"profile: it does not show the slowdown: a profiled step takes {now} instead of {before} ({change:+.1%}, "
            f"raced: {raced:+.1%}); what grew is outside of the steps, or smaller than what profiling itself costs"
        ]
    if grew <= 0:
        return [f"profile: a step takes {now}, before {before}: no slower"]
    category = attribution.spent[0][0]
    percent = f"{grew / attribution.before:+.0%}" + (f", raced: {raced:+.0%}" if raced is not None else "")
    lines = [f"profile: a step takes {now} instead of {before} ({percent}); it is {category} that grew most"]
    lines += [f"  {described(cause)}" for cause in attribution.causes[: most - 1]]
    if not attribution.causes:
        lines.append("  no single op grew by much: the growth is spread over many")
    return lines[:most]


def described(cause: Cause) -> str:
    """A cause as one line: ``MatMul +1.2 ms a step, 97% of the slowdown: 2 calls instead of 1 (MatMul_1 is new)``."""
    size = f"+{cause.grew * 1e3:.3g} ms a step, {cause.share:.0%} of the slowdown"
    if cause.category is TimeCategory.OTHER:
        return f"{TimeCategory.OTHER} (Python, dispatch) {size}"
    kinds = _listed(cause.kinds)
    if cause.after == "fused":
        return f"lost fusion: {kinds} instead of {_listed(cause.instead)} {size}"
    if cause.after == "compiled":
        return f"no longer compiled by XLA: {kinds} {size}"
    if cause.category is TimeCategory.INPUT:
        return f"{TimeCategory.INPUT}: {kinds} {size}"
    why = ""
    before, now = cause.calls
    if now > before + 0.5:
        why = f": {now:g} calls instead of {before:g}" if before else ": new"
        why += f" ({_listed(cause.new[:2])})" if cause.new and (before or cause.new[0] != cause.kinds[0]) else ""
    device = f"{cause.category}: " if cause.category is not TimeCategory.HOST else ""
    return f"{device}{kinds} {size}{why}"


def _listed(words: Sequence[str]) -> str:
    """``a, b and c``; of many the first three."""
    some = list(words[:3]) + ([f"{len(words) - 3} more"] if len(words) > 3 else [])
    return " and ".join(filter(None, [", ".join(some[:-1]), some[-1]])) if some else ""
