"""Rule on a run: from its verdicts to the outcome of each test, the exit codes, and the word of every headline.

pytest, ``tfbench gate``, the comment on a pull request, annotations and all pages ask this module and rule on nothing
themselves. Accepted regressions are entries of a reviewed file, each with a reason and an expiry date.
"""

from __future__ import annotations

import datetime
import enum
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import Meta, Struct

from tfbench.errors import UsageError
from tfbench.metrics.catalog import DECISIVE, PROBED, Worse
from tfbench.model import DECIDED, TIME, Note, Outcome, ReasonCode, Report, SuiteVerdict, Verdict
from tfbench.model.formats import Amount, FormError, Name, Text, convert
from tfbench.model.words import counted
from tfbench.policy import Policy
from tfbench.untrusted import brief, plural

SAME_CODE = "same code"
"""What a case is called that was not raced because both sides run the same code."""


class Result(enum.Enum):
    """The answer on a run or a case, the gravest first. Its value is the word that every headline has.

    A regression is certain, whatever the other cases are.
    """

    REGRESSED = "regressed", 1, "failed", "error", "bold red"
    IMPROVED = "improved", 1, "failed", "error", "bold red"
    """With ``--fail-on-improvement``: the benchmark may have stopped doing its work."""
    ERROR = "error", 5, "failed", "error", "bold red"
    INCOMPARABLE = "incomparable", 4, "skipped", "error", "bold yellow"
    INCONCLUSIVE = "inconclusive", 3, "skipped", "warning", "bold yellow"
    NOT_GATED = "not gated", 4, "passed", "warning", "bold"
    """The run named no other side, so it compared nothing with one."""
    PASS = "pass", 0, "passed", "notice", "bold green"

    code: int
    """The exit code of ``tfbench gate``; 2 remains that of a wrong command line."""
    test: str
    """The outcome of a pytest item without ``--strict-gate``: ``passed``, ``skipped`` or ``failed``."""
    level: str
    """GitHub's level of an annotation."""
    style: str
    """The style of the word on a terminal."""

    def __new__(cls, word: str, code: int, test: str, level: str, style: str) -> Result:
        result = object.__new__(cls)
        result._value_ = word
        result.code, result.test, result.level, result.style = code, test, level, style
        return result

    def __str__(self) -> str:
        return str(self.value)


_RESULTS: Mapping[Outcome, Result] = {
    Outcome.REGRESSED: Result.REGRESSED, Outcome.ERROR: Result.ERROR, Outcome.MISSING: Result.INCOMPARABLE,
    Outcome.INCOMPARABLE: Result.INCOMPARABLE, Outcome.INCONCLUSIVE: Result.INCONCLUSIVE,
    Outcome.UNGATED: Result.PASS, Outcome.UNCHANGED: Result.PASS, Outcome.IMPROVED: Result.PASS,
    Outcome.NEW: Result.PASS,
}  # fmt: skip
"""Outcome -> result, the gravest first."""


@dataclass(frozen=True)
class Ruling:
    """The answer on a run, and its reasons."""

    result: Result
    counts: str = ""
    """Number of cases per outcome: of the cases that prevent a pass, each by its gravest verdict, or of all cases."""
    reason: str = ""
    """What prevents a pass besides single verdicts; ``""`` for nothing."""
    verdicts: tuple[Verdict, ...] = ()
    """The verdicts that prevent a pass, the gravest first."""
    tolerable: bool = False
    """Whether enough cases were compared to let open verdicts pass: in pytest without ``--strict-gate``, and where `tfbench ci`
    tolerates inconclusive ones."""

    @property
    def because(self) -> str:
        """The counts and the reason, in one sentence."""
        return "; ".join(filter(None, (self.counts, self.reason)))

    @property
    def pytest_code(self) -> int:
        """0, or 1: the code of pytest for failed tests, which CI systems read as a failure.

        3 and 4 of the gate would say "internal error" and "wrong command line" in pytest.
        """
        return int(self.result.test == "failed" or (self.result.test == "skipped" and not self.tolerable))


def result_of(verdict: Verdict | SuiteVerdict) -> Result:
    """Return the result of a single verdict."""
    unwanted = any(note.code == Note.UNWANTED for note in verdict.reason.notes)
    return Result.IMPROVED if unwanted else _RESULTS[verdict.outcome]


def fails(verdict: Verdict) -> bool:
    """Whether a verdict fails the test of its case whatever the options are."""
    return result_of(verdict).test == "failed"


def grave(verdicts: Iterable[Verdict], strict: bool) -> list[Verdict]:
    """Return the verdicts that prevent a pass, the gravest first.

    With ``strict``, an inconclusive metric other than time prevents it, too.
    """
    results, order = list(Result), list(_RESULTS)
    bad = [
        verdict
        for verdict in verdicts
        if result_of(verdict) is not Result.PASS and verdict.reason.code != ReasonCode.NOT_GATED
        if strict or verdict.outcome is not Outcome.INCONCLUSIVE or verdict.metric in DECISIVE
    ]
    return sorted(bad, key=lambda verdict: (results.index(result_of(verdict)), order.index(verdict.outcome)))


def rule(
    report: Report,
    accepted: Collection[Verdict] = (),
    problems: Sequence[str] = (),
    min_compared: float = Policy().min_compared,
    *,
    strict: bool = False,
    part: bool = False,
) -> Ruling:
    """Rule on a run. Missing data never counts as a pass.

    A new case passes if other cases were compared, and so does a case that was not raced because both sides run the same
    code. A run without any comparison does not pass.

    Args:
        accepted: Verdicts that prevent no pass.
        problems: Expired and unused acceptances, which do.
        min_compared: Least share of the due cases whose times must have been compared.
        strict: Tolerate nothing that is open, in any metric.
        part: Rule on a shard, or on a file that does not tell which cases were due, by its own rows. Otherwise either is
            an error.
    """
    agreed = {(verdict.case.name, verdict.metric) for verdict in accepted}
    bad = tuple(row for row in grave(report.verdicts, strict) if (row.case.name, row.metric) not in agreed)
    timed = [verdict for verdict in report.verdicts if verdict.metric == TIME]
    excused = {
        verdict.case.name
        for verdict in accepted
        if verdict.metric == TIME and verdict.outcome in (Outcome.MISSING, Outcome.INCOMPARABLE)
    }
    gated = "baseline" in report.sides or any(verdict.outcome is not Outcome.NEW for verdict in timed)
    expected = [verdict for verdict in timed if verdict.case.name not in excused]
    shortage = _shortage(report, expected, gated, min_compared, len(set(report.due) - excused))
    unusable = Result.NOT_GATED if report.is_saved else Result.ERROR
    failures = [(unusable, "", gap)] if (gap := _gap(report, part)) else []
    for verdict in bad[:1]:
        worst = result_of(verdict)
        gravest = {verdict.case.name: verdict for verdict in reversed(bad)}.values()
        failures.append((worst, _counts(gravest), gap or (shortage if gated and worst.test == "skipped" else "")))
    if report.suite and (suite := result_of(report.suite)) is not Result.PASS:
        failures.append((suite, "", f"the suite is {report.suite.outcome}: {report.suite.reason.message}"))
    if shortage and not failures:
        failures.append((Result.INCOMPARABLE if gated else Result.NOT_GATED, "", shortage))
    failures.append((Result.PASS, _counts(timed) + _skipped(report), _first_time(timed)))
    order = list(Result)
    result, counts, reason = min(failures, key=lambda pair: order.index(pair[0]))
    if problems and result not in (Result.REGRESSED, Result.IMPROVED):
        more = plural(len(problems), "expired or unused acceptance")
        result, reason = Result.ERROR, "; ".join(filter(None, (reason, more)))
    return Ruling(result, counts, reason, bad, tolerable=not strict and not (gated and shortage))


def _gap(report: Report, part: bool) -> str:
    """Return why the report does not show the whole suite, ``""`` if it does."""
    if report.interrupted:
        return "the run was interrupted, so its other cases are unknown"
    if report.shard is not None and not part:
        index = f"{report.shard['index']} of {report.shard['of']}"
        return f"the report is shard {index} alone; give tfbench gate all shards"
    return f"the report cannot be used: {report.gap}" if report.gap else ""


def _shortage(report: Report, timed: Sequence[Verdict], gated: bool, min_compared: float, due: int) -> str:
    """Return why too few cases were compared, ``""`` if enough were. Cases that are accepted without a comparison are not due."""
    decided = sum(row.outcome in DECIDED or (row.outcome is Outcome.UNGATED and row.ratio is not None) for row in timed)
    same = sum(verdict.reason.code == ReasonCode.SAME_CODE for verdict in timed)
    if gated and _first_time(timed):
        return ""
    if not decided:
        measured = sum(verdict.outcome not in (Outcome.MISSING, Outcome.ERROR) for verdict in timed)
        cases = f"{plural(measured, 'case')} measured, none compared" if measured else "no case was measured"
        return f"{cases}{_skipped(report)}" + ("" if gated else ": run with --baseline NAME or --against SPEC")
    if decided + same < min_compared * (due - len(_added(timed))):
        few = f"only {decided} of {due} cases were compared ({_counts(timed)}{_skipped(report)})"
        return f"{few}; tfbench gate --min-compared lowers the limit of {min_compared:.0%}"
    return ""


def _added(timed: Sequence[Verdict]) -> list[Verdict]:
    """Return the cases that the other side does not have, unless it has one that is missing here: that may be a renamed one."""
    if any(verdict.outcome is Outcome.MISSING for verdict in timed):
        return []
    return [verdict for verdict in timed if verdict.outcome is Outcome.NEW and verdict.reason.code == ReasonCode.ADDED]


def _first_time(timed: Sequence[Verdict]) -> str:
    """Say that every case is new, as in the change that adds the first benchmarks; ``""`` if one is not."""
    added = len(_added(timed))
    return "every benchmark is new, so none has a baseline yet" if added and added == len(timed) else ""


def _skipped(report: Report) -> str:
    return f", {len(report.skips)} skipped" if report.skips else ""


def _counts(verdicts: Iterable[Verdict]) -> str:
    counts = Counter(SAME_CODE if row.reason.code == ReasonCode.SAME_CODE else str(row.outcome) for row in verdicts)
    return counted({word: counts[word] for word in (*map(str, Outcome), SAME_CODE)})


# Accepted regressions


_FEWER_IS_WORSE = frozenset(metric.name for metric in PROBED if metric.worse is Worse.FEWER)


class Entry(Struct, frozen=True, forbid_unknown_fields=True):
    """One accepted regression, as files have it."""

    case: Name
    reason: Annotated[Text, Meta(pattern=r"\S")]
    until: datetime.date
    """The last day on which it is valid."""
    metric: Name = TIME
    up_to: Amount | None = None
    """The largest accepted ratio of times, or the accepted value of another metric: the largest one, or the smallest one where
    fewer is worse, such as an accuracy. There ``None`` accepts any."""
    gone: bool = False
    """Whether the entry accepts that the case is missing, and nothing else."""
    incomparable: bool = False
    """Whether the entry accepts that the case is incomparable, in any metric, and nothing else."""

    def __post_init__(self) -> None:
        flag = {Outcome.MISSING: "gone", Outcome.INCOMPARABLE: "incomparable"}.get(self.outcome)
        if flag and (self.metric != TIME or self.up_to is not None or (self.gone and self.incomparable)):
            raise ValueError(f"{flag} excludes metric, up_to{' and incomparable' if self.gone else ' and gone'}")
        if not flag and self.metric == TIME and self.up_to is None:
            raise ValueError("up_to, the largest accepted ratio, is missing")

    @property
    def outcome(self) -> Outcome:
        """The outcome that the entry accepts."""
        return Outcome.MISSING if self.gone else Outcome.INCOMPARABLE if self.incomparable else Outcome.REGRESSED

    def covers(self, verdict: Verdict) -> bool:
        """Return whether this entry accepts the verdict, without regard to its expiry date."""
        if (verdict.case.name, verdict.outcome) != (self.case, self.outcome):
            return False
        if self.up_to is None:
            return self.outcome is not Outcome.REGRESSED or verdict.metric == self.metric
        ratio = verdict.ratio.center if verdict.ratio else None
        value = verdict.values.contender if verdict.values else ratio
        sign = -1 if self.metric in _FEWER_IS_WORSE else 1
        within = value is not None and sign * value <= sign * self.up_to
        return verdict.metric == self.metric and within and not self.slower_calls(verdict)

    def slower_calls(self, verdict: Verdict) -> bool:
        """Return whether slow calls cost more than the entry accepts, and more than the noise of a tail in a short race."""
        if self.up_to is None or verdict.tail is None or verdict.ratio is None:
            return False
        return verdict.tail.center > max(self.up_to, verdict.ratio.center * (1 + Policy().tail_tolerance))


@dataclass(frozen=True)
class Acceptances:
    """A file of accepted regressions."""

    accept: tuple[Entry, ...]

    def __post_init__(self) -> None:
        keys = Counter((entry.case, entry.metric, entry.outcome) for entry in self.accept)
        if twice := next((key[0] for key, times in keys.items() if times > 1), ""):
            raise ValueError(f"{brief(twice)} is there twice; keep one of the two")


def acceptances(content: Mapping[str, Any], name: str) -> Acceptances:
    """Check the content of a file that people write, which has no unknown key.

    Raises `UsageError` if an entry is invalid; the message has its number.
    """
    rows = content.get("accept", [])
    if set(content) - {"accept"} or not isinstance(rows, list):
        raise UsageError(f"{brief(name)}: only [[accept]] tables are allowed")
    accepted = [_entry(row, f"{brief(name)}, entry {number}") for number, row in enumerate(rows, 1)]
    try:
        return Acceptances(tuple(accepted))
    except ValueError as error:
        raise UsageError(f"{brief(name)}: {error}") from None


def _entry(row: Any, where: str) -> Entry:
    try:
        return convert(Entry, row)
    except FormError as error:
        raise UsageError(f"{where}: {brief(error if error.place else error.what)}; {_FIX}") from None


_FIX = "write case, reason, until = 2027-01-31 (the last day), and up_to = 1.08, metric, gone = true or incomparable = true"


def _now(entry: Entry, report: Report) -> str:
    """Describe the present state of the case, for the message about an unused entry."""
    rows = [verdict for verdict in report.verdicts if verdict.case.name == entry.case]
    same = next((verdict for verdict in rows if verdict.metric == entry.metric), None)
    if same is None:
        return "because the report has no such case or metric"
    if same.outcome is Outcome.REGRESSED and same.tail and entry.slower_calls(same):
        return f"because slow calls raise the mean of the case to {same.tail.center:.2f} times the old one"
    if same.outcome is Outcome.REGRESSED and entry.up_to is not None:
        return f"because the case is worse than the accepted {entry.up_to:g}: {same.reason.message}"
    return f"because the case is {same.outcome}"


@dataclass(frozen=True)
class GateDecision:
    """The ruling on a report, and the accepted regressions that it took into account."""

    ruling: Ruling
    accepted: tuple[tuple[Verdict, Entry], ...] = ()
    """Accepted verdicts, which do not fail the gate, with their entries."""
    problems: tuple[str, ...] = ()
    """Expired and unused entries, one sentence each. They fail the gate until they are removed."""


def decided(
    report: Report,
    accepted: Sequence[Entry] = (),
    today: datetime.date | None = None,
    min_compared: float = Policy().min_compared,
) -> GateDecision:
    """Decide on a report; ``today`` defaults to the date in UTC. See `rule` for ``min_compared``."""
    day = today or datetime.datetime.now(datetime.timezone.utc).date()
    taken, problems = list[tuple[Verdict, Entry]](), list[str]()
    for entry in accepted:
        covered = [verdict for verdict in report.verdicts if entry.covers(verdict)]
        what = f"{entry.case}{'' if entry.metric == TIME else f' ({entry.metric})'}: the acceptance"
        if entry.until < day:
            problems.append(f"{what} expired on {entry.until} ({entry.reason}); fix the regression, or renew the entry")
        elif not covered:
            problems.append(f"{what} is unused, {_now(entry, report)}; remove the entry")
        else:
            taken += [(verdict, entry) for verdict in covered]
    ruling = rule(report, [verdict for verdict, _ in taken], problems, min_compared)
    return GateDecision(ruling, tuple(taken), tuple(problems))
