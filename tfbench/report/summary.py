"""What a summary says, and in which order."""

from __future__ import annotations

import enum
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tfbench.facts import OPTION
from tfbench.metrics.catalog import CONTRACT
from tfbench.model import JSON, TIME, Case, Note, Outcome, Ratio, Reason, ReasonCode, Report, Verdict
from tfbench.model.words import calls, counted, duration, times
from tfbench.policy import Policy
from tfbench.ruling import SAME_CODE, Result, Ruling, fails, rule
from tfbench.sides.spec import WORKING_TREE
from tfbench.stats.verdict import mean_ratio
from tfbench.suite.axes import case_words
from tfbench.untrusted import command, is_case, is_shared_spec, plural, some

# Words about a verdict, and drawings of its interval


MEANS_APART = 0.03
"""Difference of the log-ratios of mean and median from which reports show both: noise alone makes one of 1.5%."""


@dataclass(frozen=True, slots=True)
class CaseTable:
    """A table of cases in words."""

    caption: str
    labels: Sequence[str]
    """Headings of the columns after the first one, which has the cases."""
    rows: Sequence[Sequence[str]]
    ratios: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    """Of several files: name of a case -> its time in each, relative to the first; ``None`` without a time."""
    most: int = 0
    """Rows on a terminal, 0 for all."""

    @staticmethod
    def of_times(caption: str, labels: Sequence[str], medians: Mapping[str, Sequence[float | None]]) -> CaseTable:
        """Make the table of times in several files, of which the first has a time of every case."""
        rows, ratios = [], dict[str, list[float | None]]()
        for name, (first, *others) in medians.items():
            ratios[name] = [1.0, *(seconds / first if seconds and first else None for seconds in others)]
            cells = [f"{duration(seconds)} ({seconds / first:.3f})" if seconds and first else "-" for seconds in others]
            rows.append([name, duration(first or 0.0), *cells])
        return CaseTable(caption, labels, rows, ratios)

    def slower(self, limit: float) -> list[str]:
        """Return the cases whose time in the last file is larger than in the first by more than this fraction."""
        return [name for name, ratios in self.ratios.items() if (ratios[-1] or 0.0) > 1 + limit]


HIDDEN_SHARE = 0.5
"""A step in which a GPU works for a smaller share of the time is hidden behind its dispatch: the host takes longer."""


def is_hidden(facts: JSON) -> bool:
    """Return whether a profile of a step shows that other kernels would hardly change its time."""
    return bool(facts.get("device_share", 1.0) < HIDDEN_SHARE)


def calls_that_differ(verdict: Verdict) -> str:
    """Return `calls` of a verdict whose mean has another ratio than its median; ``""`` for others."""
    if verdict.calls is None:
        return ""
    before, now = verdict.calls
    apart = math.log(now.mean / before.mean) - math.log(now.p50 / before.p50)
    return calls(before, now) if abs(apart) > MEANS_APART else ""


def explanation(verdict: Verdict) -> str:
    """Return the reason of a verdict, with the calls of both sides where they differ and the reason does not have them."""
    tail = calls_that_differ(verdict)
    told = not tail or any(note.code == Note.CALLS for note in verdict.reason.notes)
    return verdict.reason.message if told else f"{verdict.reason.message}; {tail}"


# Say what the sides were: their code, and their differences apart from the compared version


_ASKED = ("tensorflow", "tf-nightly")
"""Prefixes of the compared packages. Packages that belong to TensorFlow, such as tensorflow-io, change with it."""


def differences(sides: Mapping[str, JSON]) -> list[str]:
    """Describe each difference in one line: Python, packages, settings and the defaults of a version.

    ``sides`` maps labels to descriptions. Unknown values are not a difference.
    """
    known = {label: facts for label, side in sides.items() if (facts := _facts(side))}
    lines = []
    for name in dict.fromkeys(name for facts in known.values() for name in facts):
        levels = {label: facts.get(name, "none") for label, facts in known.items()}
        values = dict.fromkeys(levels.values())
        if len(values) > 1:  # list each value once: "off on 2.15.1, on on 2.16.2 and 2.21.0"
            labels = {value: " and ".join(label for label in levels if levels[label] == value) for value in values}
            lines.append(f"{name}: {', '.join(f'{value} on {ones}' for value, ones in labels.items())}")
    return lines


_CHANGES = 10
"""Maximum changes of the yardstick that are named."""


def yardstick_lines(report: Report) -> list[str]:
    """Describe in a line each what a change has edited in the benchmarks that judge it; empty if it has edited none."""
    changes = report.yardstick
    lines = []
    for change in changes[:_CHANGES]:
        words = f"{change.before or 'nothing'} -> {change.now or 'nothing'}"
        lines.append(f"{change.file}{f': {change.name}' if change.name else ''} ({words})")
    return lines + ([f"and {len(changes) - _CHANGES} more"] if len(changes) > _CHANGES else [])


YARDSTICK = "the yardstick itself changed, and both sides ran the benchmarks of the change"
"""Heading of these lines."""


def _facts(side: JSON) -> dict[str, str]:
    if "packages" not in side:
        return {}
    packages = {name: version for name, version in side["packages"].items() if not name.startswith(_ASKED)}
    return {"Python": side.get("python", ""), **side.get("defaults", {}), **packages, **side.get("settings", {})}


def code_of_side(side: JSON) -> str:
    """Name the code of a side, ``commit 1a2b3c4d5e6f, changed (tree 6f5e4d3c2b1a)``; ``absent`` if it is not known."""
    commit, tree = str(side.get("commit", "")), str(side.get("tree", ""))
    kind, _, rest = tree.partition(":")
    words = {"": "absent", "sources": f"sources {rest[:12]}", "session": f"run {rest}"}.get(kind, f"tree {kind[:12]}")
    return f"commit {commit[:12]}{', changed' if side.get('dirty') else ''} ({words})" if commit else words


# Write the command that races a case of a report again


_DEFAULT_POLICY = "standard"


def command_words(report: Report, verdict: Verdict, root: str | None = None) -> tuple[str, ...]:
    """Return the words of the command that races the case of a verdict again. The last one is the name of the case.

    There are no words if the case no longer exists, or the project's conftest.py had options.
    ``root`` leads from where the reader is to pytest's root, such as ``../``. Without it, strangers may have made the report,
    so that there are no words for a side that could do harm.
    """
    name, contender, side = verdict.case.name, report.sides.get("contender", {}), report.sides.get("baseline", {})
    if verdict.outcome is Outcome.MISSING or not is_case(name):
        return ()
    baseline, spec, other = side.get("saved", ""), side.get("spec", ""), contender.get("spec") or WORKING_TREE
    specs = [one for one in (spec, other) if one != WORKING_TREE] if spec and not baseline else []
    if root is None and not all(map(is_shared_spec, specs)):
        return ()
    if any(one.startswith(OPTION) for one in contender.get("settings", {})):
        return ()
    case = case_words(f"{root or ''}{name}")
    if len(specs) > 1:
        return "tfbench", "versions", spec, "self" if other == spec else other, *case
    words = ["--baseline", baseline] if baseline else ["--against", spec] if spec else []
    policy = str(report.policy.get("name") or _DEFAULT_POLICY)
    if policy != _DEFAULT_POLICY and policy.isalnum() and policy.isascii():
        words += ["--policy", policy]
    slowdown = contender.get("slowdown")
    if spec and isinstance(slowdown, (int, float)) and slowdown > 0:
        words += ["--inject-slowdown", f"{slowdown:g}"]
    return "pytest", "--benchmark", *words, *case


# Sort the verdicts of a report into what a reader must know, in the order in which terminal, HTML and Markdown show it


_CAUSES = 5
"""Maximum causes of a case. A profile has at most five; `CaseFinding.unexplained` has the metrics that are left out."""
_OTHERS = 4
"""Maximum other metrics of a case that are listed."""
_LEAST_SHARE = 0.005
"""Share of the wall time that a phase must have to be shown."""
_MEASURED: Mapping[str, str] = {
    ReasonCode.NO_BASELINE: "measured", ReasonCode.CONTRACT_HELD: "contract{} held", ReasonCode.SAME_CODE: SAME_CODE,
}  # fmt: skip
"""Reasons that say more than their outcomes. Braces stand for the ending of the plural."""


class Group(str, enum.Enum):
    """A part of the summary, in the order of this list, with its heading."""

    ERRORS = "errors and missing cases"
    REGRESSIONS = "regressions"
    INCONCLUSIVE = "inconclusive or incomparable"
    UNGATED = "shown and not gated"
    IMPROVEMENTS = "improvements"


_GROUPS: Mapping[Outcome, Group] = {
    Outcome.MISSING: Group.ERRORS, Outcome.ERROR: Group.ERRORS, Outcome.REGRESSED: Group.REGRESSIONS,
    Outcome.INCONCLUSIVE: Group.INCONCLUSIVE, Outcome.INCOMPARABLE: Group.INCONCLUSIVE, Outcome.UNGATED: Group.UNGATED,
    Outcome.IMPROVED: Group.IMPROVEMENTS,
}  # fmt: skip
"""In the order in which counts are shown."""
_CHANGED = (Outcome.REGRESSED, Outcome.IMPROVED)
_DECISIVE = (Outcome.ERROR, Outcome.MISSING, Outcome.UNGATED, *_CHANGED)
"""Outcomes that are worth a line for any metric; the others only for the time, or if they prevent a pass."""


@dataclass(frozen=True, slots=True)
class CaseFinding:
    """A case that a reader must know about: its gravest verdict, and what explains it."""

    case: Case
    verdict: Verdict
    others: tuple[Verdict, ...]
    """The case's further verdicts that are not unchanged, the gravest first."""
    old: float | None
    """Median seconds of the baseline. ``None`` if the report does not have its rounds."""
    new: float | None
    """See `time_now`."""
    causes: tuple[str, ...]
    """From the case's profiles and its other metrics, a line each."""
    unexplained: tuple[Verdict, ...]
    """Those of ``others`` on metrics that no cause names."""
    again: tuple[str, ...]
    """Words of the command that races the case again, see `command_words`."""

    @property
    def what(self) -> str:
        """The outcome, with the metric if it is not the time: ``regressed``, ``regressed graph_ops``."""
        return f"{self.verdict.outcome}{'' if self.verdict.metric == TIME else f' {self.verdict.metric}'}"

    def sides(self, arrow: str = "->") -> str:
        """Return the time before and now: ``4.02 ms -> 4.32 ms``; ``""`` if one is unknown."""
        return f"{self.shown(self.old)} {arrow} {self.shown(self.new)}" if self.old and self.new else ""

    def shown(self, seconds: float) -> str:
        """Format a time; one that the benchmark takes itself without a unit, since some report microseconds."""
        if all(note.code != Note.OWN_TIMES for note in self.timed.reason.notes):
            return duration(seconds)
        return f"{seconds:,.0f}" if seconds >= 100 else f"{seconds:.3g}"

    @property
    def timed(self) -> Verdict:
        """The verdict on time; `verdict` if the report has none that a reader must know."""
        return next(iter(report_times((self.verdict, *self.others))), self.verdict)

    @property
    def ratio(self) -> Ratio | None:
        """The ratio of times; ``None`` if the report has none that a reader must know."""
        return self.timed.ratio if self.timed.metric == TIME else None

    @property
    def why(self) -> list[str]:
        """What explains the verdict, a line each: calls that differ, its reason if it is no change, causes, other verdicts."""
        tail = filter(None, [calls_that_differ(self.timed)])
        reason = [] if self.verdict.outcome in _CHANGED else [_first_line(self.verdict.reason)]
        rest = [f"{row.outcome} {row.metric}" for row in self.unexplained[:_OTHERS]]
        return [*tail, *[*reason, *self.causes][:_CAUSES], *rest]

    @property
    def command(self) -> str:
        """The command that races the case again, ``""`` if the report's names are not safe to paste."""
        return command(*self.again)


@dataclass(frozen=True, slots=True)
class Summary:
    """What a report says, in the order in which it is shown."""

    ruling: Ruling
    """On the run; on a shard by its own cases."""
    headline: str
    """The word of the ruling, and the counts."""
    findings: Mapping[Group, Sequence[CaseFinding]]
    counts: Mapping[str, int]
    """Number of cases by the outcome of their time, in a fixed order; skipped cases come last."""
    other_counts: Mapping[str, int]
    """The same for the other metrics."""
    limits: tuple[float, float]
    """Ratios that an improvement lies below, and a regression above."""
    mean: Ratio | None
    """Mean of the ratios of time with its 95% interval; ``None`` if fewer than `FEWEST_CASES` cases were compared."""
    compared: int
    """Cases in that mean."""

    @property
    def reason(self) -> str:
        """What prevents a pass besides single cases, ``""`` for nothing. A run without another side was to gate nothing."""
        return "" if self.ruling.result is Result.NOT_GATED else self.ruling.reason


def summarize(report: Report, *, strict: bool = False, root: str | None = None) -> Summary:
    """Sort and count the verdicts of a report, for ``strict`` see `rule`, and for ``root`` `command_words`."""
    ruling = rule(report, strict=strict, part=True)
    minimum = minimum_effect(report.policy)
    timed = report_times(report.verdicts)
    ratios = [verdict.ratio for verdict in timed if verdict.ratio is not None and 0 < verdict.ratio.center < math.inf]
    counts = count(timed) | ({"skipped": len(report.skips)} if report.skips else {})
    findings = _findings(report, ruling, minimum, root)
    return Summary(
        ruling=ruling, headline=_headline(report, ruling, counts),
        findings={group: [one for one in findings if _GROUPS[one.verdict.outcome] is group] for group in Group}, counts=counts,
        other_counts=count(verdict for verdict in report.verdicts if verdict.metric != TIME),
        limits=(1 / (1 + minimum), 1 + minimum), mean=mean_ratio(ratios), compared=len(ratios),
    )  # fmt: skip


def _headline(report: Report, ruling: Ruling, counts: Mapping[str, int]) -> str:
    part = f"shard {report.shard['index']} of {report.shard['of']}: " if report.shard else ""
    failing = [verdict for verdict in ruling.verdicts if fails(verdict)]
    slow = {verdict.case.name for verdict in failing if verdict.metric == TIME}
    others = [verdict for verdict in failing if verdict.case.name not in slow]
    kinds = Counter(  # of what fails the run where no time does, such as one contract broken
        f"{'contract' if verdict.metric.startswith(CONTRACT) else verdict.metric} "
        f"{'broken' if verdict.reason.code == ReasonCode.CONTRACT_BROKEN else verdict.outcome}"
        for verdict in others
    )
    also = f"{len({verdict.name for verdict in others})} more failed by other metrics" if slow and others else ""
    words = filter(None, ("" if slow else counted(kinds), counted(counts) or "no cases", also))
    return f"{part}{ruling.result}: {'; '.join(words)}"


def minimum_effect(policy: Mapping[str, Any]) -> float:
    """Return the smallest change that a policy reports; the default policy's for a report that does not state it."""
    effect = policy.get("minimum_effect")
    return float(effect) if isinstance(effect, (int, float)) and 0 < effect < 10 else Policy().minimum_effect


def count(verdicts: Iterable[Verdict]) -> dict[str, int]:
    """Count verdicts by outcome, the gravest first."""
    order = [*_GROUPS, *(outcome for outcome in Outcome if outcome not in _GROUPS)]
    counts = Counter(_MEASURED.get(verdict.reason.code, str(verdict.outcome)) for verdict in verdicts)
    known = {word: counts[word] for word in (*map(str, order), *_MEASURED.values()) if word in counts}
    return {word.format("" if known[word] == 1 else "s"): known[word] for word in known}


def _findings(report: Report, ruling: Ruling, minimum: float, root: str | None) -> list[CaseFinding]:
    grave = {(verdict.case.name, verdict.metric) for verdict in ruling.verdicts}
    rows: dict[str, list[Verdict]] = defaultdict(list)
    for verdict in report.verdicts:
        if verdict.outcome in _GROUPS:
            rows[verdict.name].append(verdict)
    known, order = times_of(report), list(Group)

    def gravity(verdict: Verdict) -> tuple[int, bool, float]:
        """Sort cases, and the verdicts of a case that is no slower."""
        return order.index(_GROUPS[verdict.outcome]), verdict.metric != TIME, -_over(verdict, minimum)

    findings = []
    for name, own in rows.items():
        own.sort(key=lambda row: (row.metric != TIME or row.outcome is not Outcome.REGRESSED, gravity(row)))
        if not any(row.outcome in _DECISIVE or row.metric == TIME or (name, row.metric) in grave for row in own):
            continue
        first, *others = own
        why, again = _causes(report, own), command_words(report, first, root)
        findings.append(CaseFinding(first.case, first, tuple(others), *known[name], *why, again))
    return sorted(findings, key=lambda finding: gravity(finding.verdict))


_SKIPS = 10
"""Maximum different reasons of skipped cases."""


def skip_lines(report: Report) -> list[str]:
    """Describe the skipped cases in a line for each reason."""
    reasons: dict[str, list[str]] = {}
    for skip in report.skips:
        reasons.setdefault(skip.reason, []).append(skip.case.short_name)
    lines = [f"{some(names, 1)}: {reason}" for reason, names in list(reasons.items())[:_SKIPS]]
    more = len(reasons) - _SKIPS
    return lines + ([f"for {plural(more, 'other reason')}: see --report-json"] if more > 0 else [])


def mean_lines(report: Report, summary: Summary) -> Iterator[tuple[str, str]]:
    """Yield the mean ratio of all cases, and the verdict on it."""
    if summary.mean is not None:
        yield f"mean ratio of {summary.compared} cases", times(summary.mean)
    if report.suite is not None:
        yield f"suite, to find {report.suite.limit:.2%}", f"{report.suite.outcome}, {report.suite.reason.message}"


def report_times(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Return the verdicts on time."""
    return [verdict for verdict in verdicts if verdict.metric == TIME]


def _over(verdict: Verdict, minimum: float) -> float:
    """Return by how much a change exceeds the threshold, on a logarithmic scale; 0 without two values."""
    if verdict.ratio is not None:
        change = verdict.ratio.center
    else:
        before, now = verdict.values or (None, None)
        change = now / before if before and now and now / before > 0 else 1.0
    return abs(math.log(change)) - math.log1p(minimum) if 0 < change < math.inf else 0.0


def time_now(old: float | None, ratio: Ratio | None, median: float | None) -> float | None:
    """Return the time that a reader compares with the old one: that times the ratio, or the median without a ratio.

    Two medians of different launches are not paired, and may contradict the ratio, which compares turns of the same moment.
    """
    return old * ratio.center if old and ratio and 0 < ratio.center < math.inf else median


def times_of(report: Report) -> Mapping[str, tuple[float | None, float | None]]:
    """Return the times of each case: the baseline's median and `time_now`, ``None`` if the report does not have them."""
    medians = {(row.case.name, "contender"): row.median_seconds for row in report.variant_results}
    medians |= {(row.case, row.side): row.median_seconds for row in report.rounds}
    ratios = {row.name: row.ratio for row in report_times(report.verdicts)}
    known = defaultdict[str, tuple[float | None, float | None]](lambda: (None, None))
    for name, _ in medians:
        old = medians.get((name, "baseline"))
        known[name] = old, time_now(old, ratios.get(name), medians.get((name, "contender")))
    return known


def time_spent(report: Report) -> str:
    """Say what the wall time was spent on, the longest phase first; ``""`` if the report does not tell."""
    total = sum(report.seconds_by_phase.values()) or 1.0
    shares = sorted(((seconds / total, phase) for phase, seconds in report.seconds_by_phase.items()), reverse=True)
    return ", ".join(f"{share:.0%} {phase}" for share, phase in shares if share >= _LEAST_SHARE)


def _causes(report: Report, rows: Sequence[Verdict]) -> tuple[tuple[str, ...], tuple[Verdict, ...]]:
    """Return the causes of a case's verdicts, and its verdicts on other metrics that no cause names.

    Causes come from the profiles of the case, then from the changes of its other metrics.
    """
    notes = [note for row in rows if row.metric == TIME for note in row.reason.notes]
    changes = [str(change) for note in notes if note.code == Note.OTHER_METRICS for change in note.notes]
    others = [row for row in rows[1:] if row.metric != TIME]
    if rows[0].outcome not in _CHANGED:  # the reason on the time has its changes
        return () if rows[0].metric == TIME else tuple(changes), tuple(others)
    causes = [*(line.strip() for line in report.why(rows[0].case.name)), *changes][:_CAUSES]
    named = [row for row in rows if row.metric != TIME and row.outcome is not Outcome.INCONCLUSIVE]
    named = named[: _CAUSES - len(causes)]
    causes += [f"{row.metric}: {_first_line(row.reason)}" for row in named]
    return tuple(causes), tuple(row for row in others if row not in named)


def _first_line(reason: Reason) -> str:
    """Return a reason in one line; that of a file may have several."""
    return reason.message.partition("\n")[0]
