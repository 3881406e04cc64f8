"""Reports in the terminal."""

from __future__ import annotations

import io
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence

from rich.console import Group as Parts
from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from tfbench.model import Case, Outcome, ReasonCode, Report, VariantResult
from tfbench.model.words import counted, duration, percent, rate, rates, size, times
from tfbench.report import summary as summaries
from tfbench.report.screen import COLOURS, Screen, add_row, break_name, folded, right, table
from tfbench.stats.rounds import UNITS
from tfbench.untrusted import command, plural, some

# Tables of the variants of each workload, relative to the reference variant, for the terminal


Column = tuple[str, str, Callable[[float], str]]
_EXTRA: tuple[tuple[Column, int], ...] = (
    (("first_call", "first call", duration), 100), (("peak_host_memory", "memory", size), 100),
    (("accuracy", "accuracy", "{:.1%}".format), 120), (("artifact_bytes", "size", size), 120),
    (("artifact_gzipped_bytes", "gzipped", size), 120), (("p90", "p90", duration), 130),
    (("dispatch_time", "dispatch", duration), 110), (("device_share", "on device", percent), 110),
    (("share", "% of roofline", percent), 115),
)  # fmt: skip
"""Optional columns of the table of variants: fact, heading and format, and the minimum width of the terminal."""
_RATIO_COLOURS: dict[Outcome | None, str] = {Outcome.REGRESSED: "red", Outcome.IMPROVED: "green"}
_WORK = [(fact, UNITS[fact]) for fact in ("flops", "items", "bytes")]
"""Work of a call and the unit of its rate, the most telling first."""


def variant_tables(results: Sequence[VariantResult], width: int) -> list[RenderableType]:
    """Return a table for each workload, with its whole name if several share one. Wider terminals get more columns."""
    extra = [column for column, least in _EXTRA if width >= least]
    groups: dict[str, list[VariantResult]] = defaultdict(list)
    for result in results:
        groups[result.case.group].append(result)
    titles = {group: group.rpartition("::")[2] for group in groups}
    alike = Counter(titles.values())
    return [
        _variant_results(title if alike[title] == 1 else group, groups[group], extra) for group, title in titles.items()
    ]


def _levels(case: Case) -> str:
    others = (case.group if case.variant else case.name).partition("[")[2].removesuffix("]")
    return ", ".join(filter(None, (*case.levels.values(), others))) or "-"


def _variant_results(title: str, results: list[VariantResult], columns: Iterable[Column]) -> RenderableType:
    extra = [column for column in columns if any(column[0] in result.facts for result in results)]
    work = next((kind for kind in _WORK if any(kind[0] in result.facts for result in results)), None)
    numbers = ["time", "ratio to reference", "launches", *(heading for _, heading, _ in extra)]
    numbers += ["rate"] if work else []
    made = table(title, *folded(", ".join(results[0].case.levels) or "variant"), *right(*numbers))
    references = {result.case.name: result.median_seconds for result in results}
    for result in sorted(results, key=lambda result: result.case.name != result.reference):
        facts = result.facts
        reference = references.get(result.reference)
        seconds = summaries.time_now(reference, result.ratio, result.median_seconds) or result.median_seconds
        ratio = Text("reference" if result.variant else "-", "dim")
        if result.ratio is not None:
            ratio = Text(times(result.ratio), _RATIO_COLOURS.get(result.outcome, ""))
        hidden = "\n  hidden behind dispatch" if summaries.is_hidden(facts) else ""
        cells: list[str | Text] = [_levels(result.case) + hidden, duration(seconds), ratio, str(result.launches)]
        cells += [words(facts[fact]) if fact in facts else "" for fact, _, words in extra]
        if work:
            cells.append(rate(facts[work[0]] / seconds, work[1]) if facts.get(work[0]) else "")
        add_row(made, *cells)
    return made


# Render a report for the terminal, at the end of a run: what a reader must know first, in at most 80 columns


_MOST = 20
"""Maximum cases of each part."""
_UNMEASURED = 3
"""More cases than these that a run did not measure, for one reason, have one entry."""
_INDENT = "    "


def render(report: Report, *, width: int, colour: bool, strict: bool = False, root: str | None = None) -> str:
    """Render the variants of each workload, then errors, regressions, inconclusive cases and improvements, and counts.

    Args:
        width: Characters per line. Only a single longer word, such as the name of a case, is longer.
        root: See `tfbench.report.summary.command_words`.
    """
    text = io.StringIO()
    Screen(
        file=text, width=width, force_terminal=colour, no_color=not colour,
        color_system="standard" if colour else None, legacy_windows=False,
    ).print(_parts(report, width, strict=strict, root=root))  # fmt: skip
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())


def show(screen: Screen, report: Report, root: str | None = None) -> None:
    """Print a report, see `render`."""
    screen.print(_parts(report, screen.width, root=root))


def _parts(report: Report, width: int, *, strict: bool = False, root: str | None = None) -> RenderableType:
    summary = summaries.summarize(report, strict=strict, root=root)
    parts: list[RenderableType] = [Text(f"differs: {line}", "dim") for line in summaries.differences(report.sides)]
    if lines := summaries.yardstick_lines(report):
        parts += [Text(f"{summaries.YARDSTICK}:"), *(_hanging(line, width) for line in lines)]
    parts += variant_tables(report.variant_results, width)
    for group, findings in summary.findings.items():
        parts += _group(group, findings, summary, width)
    parts += [Text(f"skipped {line}", "yellow") for line in summaries.skip_lines(report)]
    if summary.other_counts:
        parts.append(Text(f"other metrics: {counted(summary.other_counts)}"))
    parts += [Text(f"time: {spent}")] if report.seconds_by_case and (spent := summaries.time_spent(report)) else []
    parts += [Text(f"{name}: {text}") for name, text in summaries.mean_lines(report, summary)]
    parts += [Text(summary.reason, "yellow")] if summary.reason else []
    took = "" if report.is_saved else f" in {report.wall_seconds:.0f} s (policy {report.policy['name']})"
    parts.append(Text(f"{summary.headline}{took}", "bold"))
    return Parts(*parts)


_NAME = 32
"""Characters of a line of a case's name beside times of several files or versions."""


def side_by_side(cases: summaries.CaseTable) -> RenderableType:
    """Return a table of the times of several files or versions."""
    made = table(cases.caption, "case", *folded(*cases.labels, justify="right"))
    for name, *cells in cases.rows[: cases.most or None]:
        add_row(made, break_name(name, _NAME), *cells)
    more = len(cases.rows) - cases.most
    return Parts(made, Text(f"and {more:,} more cases: --html has all")) if cases.most and more > 0 else made


def _group(
    group: summaries.Group, findings: Sequence[summaries.CaseFinding], summary: summaries.Summary, width: int
) -> list[RenderableType]:
    if not findings:
        return []
    least, is_sorted = summary.limits[1] - 1, group is summaries.Group.REGRESSIONS
    limit = f", by size above the threshold of {least:.1%}" if is_sorted else ""
    made: list[RenderableType] = [Text(f"{group.value} ({len(findings)}{limit})", "bold")]
    unmeasured: dict[str, list[str]] = defaultdict(list)
    for finding in findings:
        if finding.verdict.reason.code == ReasonCode.NOT_MEASURED:
            unmeasured[finding.verdict.reason.message].append(finding.case.short_name)
    shown = [finding for finding in findings if len(unmeasured.get(finding.verdict.reason.message, ())) <= _UNMEASURED]
    for finding in shown[:_MOST]:
        made += _finding(finding, width)
    for why, names in unmeasured.items():
        if len(names) > _UNMEASURED:
            made += [Text(f"  {some(names, _UNMEASURED)}"), _hanging(f"{plural(len(names), 'case')}: {why}", width)]
    if (more := len(shown) - _MOST) > 0:
        made.append(Text(f"  and {more} more: --report-html and --report-json have all"))
    return [*made, Text()]


def _finding(finding: summaries.CaseFinding, width: int) -> list[RenderableType]:
    verdict = finding.verdict
    head = Text("  ").append(finding.case.short_name, COLOURS[verdict.outcome])
    head.append(f"  {finding.what}")
    lines: list[RenderableType] = [head]
    timed = finding.timed
    if finding.ratio is not None:
        parts = filter(None, (finding.sides(), times(finding.ratio)))
        lines.append(Text(f"{_INDENT}{'  '.join(parts)}"))
    elif finding.new is not None and verdict.outcome is not Outcome.ERROR:
        lines.append(Text(f"{_INDENT}{finding.sides() or f'{finding.shown(finding.new)} now'}"))
    for unit, both in list(timed.rates.items())[:1]:
        lines.append(Text(f"{_INDENT}{rates(both.baseline, both.contender, unit)}"))
    lines += [_hanging(line, width) for line in finding.why]
    if finding.again:
        lines.append(_command(finding.again, width))
    return lines


def _hanging(text: str, width: int) -> RenderableType:
    return Padding(Text(text), (0, 0, 0, len(_INDENT)), expand=False) if width > 2 * len(_INDENT) else Text(text)


def _command(words: Sequence[str], width: int) -> Text:
    """Return a command, over two lines if necessary: a shell joins them again."""
    text = f"{_INDENT}{command(*words)}"
    if len(text) > width:
        text = f"{_INDENT}{command(*words[:-1])} \\\n{_INDENT}  {command(words[-1])}"
    return Text(text, "cyan", no_wrap=True, overflow="ignore")
