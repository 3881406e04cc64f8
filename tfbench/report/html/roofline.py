"""Draw the roofline: what cases reach of the machine's ceilings (Williams, Waterman & Patterson 2009, CACM 52)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from tfbench.model import VariantResult
from tfbench.report.html.charts import LOG, Chart, ChartAxis, Series

_CEILING = "ceiling"
_POINTS = 40
"""Points of a ceiling's line."""


def roofline(results: Sequence[VariantResult]) -> Chart | None:
    """Return the chart; ``None`` without ceilings, or without a case that states both its operations and bytes."""
    cases = [one for one in results if one.facts.get("flops") and one.facts.get("bytes") and _CEILING not in one.facts]
    ceilings = list(_ceilings(results))
    bandwidth = max((value for kind, _, value in ceilings if kind == "bytes"), default=0.0)
    peaks = {name: value for kind, name, value in ceilings if kind == "flops"}
    if not cases or not bandwidth or not peaks:
        return None
    intensities = [one.facts["flops"] / one.facts["bytes"] for one in cases]
    reached = [one.facts["flops"] / one.median_seconds for one in cases]
    low = min(*intensities, *(peak / bandwidth for peak in peaks.values())) / 4
    high = max(*intensities, *(peak / bandwidth for peak in peaks.values())) * 4
    xs = [low * (high / low) ** (step / (_POINTS - 1)) for step in range(_POINTS)]
    colours = ("second", "bad", "open", "quiet")
    lines = [
        Series(f"ceiling, {name}", xs, [min(peak, x * bandwidth) for x in xs], "line", colours[index % len(colours)])
        for index, (name, peak) in enumerate(sorted(peaks.items(), key=lambda one: -one[1]))
    ]
    points = Series("cases", intensities, reached, labels=[one.case.short_name for one in cases])
    caption = (
        "Operations per second of each case over its operations per byte. The lines are the ceilings that the same run "
        "measured: memory on the left, arithmetic on the right. A point far below its line leaves time unused."
    )
    axes = ChartAxis("operations per byte", scale=LOG), ChartAxis("operations per second", scale=LOG)
    return Chart(caption, *axes, [*lines, points], height=400)


def _ceilings(results: Sequence[VariantResult]) -> Iterator[tuple[str, str, float]]:
    """Yield kind, name and height of each ceiling; of several cases of one kind and precision, the highest."""
    found: dict[tuple[str, str], float] = defaultdict(float)
    for one in results:
        kind = one.facts.get(_CEILING)
        if kind in ("flops", "bytes") and one.facts.get(kind):
            levels = one.case.levels
            name = ", ".join(filter(None, (levels.get("precision", "float32"), levels.get("device", ""))))
            key = (kind, name if kind == "flops" else "")
            found[key] = max(found[key], one.facts[kind] / one.median_seconds)
    for (kind, name), value in found.items():
        yield kind, name, value
