"""Turn a race, or the failure that ended it, into results of its cases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median, quantiles
from traceback import format_exception

from tfbench.errors import BenchmarkError, BenchmarkSkipped, SideError, TfbenchError, WorkerDied, WorkerHung
from tfbench.metrics import contracts
from tfbench.metrics.catalog import DISPATCH_TIME, FIRST_CALL, GPU_CLOCK, MODEL_METRICS, PEAK_HOST_MEMORY
from tfbench.model import (
    JSON,
    REPORTED,
    TIME,
    Case,
    Claim,
    Comparison,
    Outcome,
    Reason,
    ReasonCode,
    Run,
    Sample,
    Statistic,
    VariantResult,
    Verdict,
)
from tfbench.policy import Policy
from tfbench.race.confirmed import ConfirmedRace
from tfbench.race.race import Race
from tfbench.report import units
from tfbench.session.request import CaseResult
from tfbench.stats.calls import calls_of
from tfbench.stats.thresholds import described, ignored, judged
from tfbench.stats.throughput import log_items_ratio, rates
from tfbench.stats.two_speeds import two_speeds
from tfbench.stats.verdict import compare, decide

NO_BASELINE = Reason(
    ReasonCode.NO_BASELINE, "measured; compared with the other variants only, as the run has no baseline"
)


def of_variant(race: Race, index: int) -> CaseResult:
    """Return the result of one variant, relative to the reference variant of its race."""
    case = race.entrants[index].case
    if (failure := race.failures.get(index)) is not None:
        return failed(case, failure)
    if race.abort_reason:
        return disturbed(case, race)
    result = new(case, race, index, NO_BASELINE)
    assert result.sample is not None
    decision = race.decisions.get(index)
    variant_result = VariantResult(
        case=case,
        reference=race.entrants[index if race.reference is None else race.reference].case.name,
        median_seconds=median(result.sample.seconds),
        ratio=decision.comparison.ratio if decision else None,
        outcome=decision.outcome if decision else None,
        launches=len(result.sample.runs),
        rounds=race.rounds(index),
        facts=_typical_facts(result.sample.runs) | percentiles(result.sample),
    )
    return replace(result, variant_result=variant_result, metrics=tuple(claimed(race, index)))


def with_facts(result: CaseResult, facts: JSON) -> CaseResult:
    """Add facts to the variant result, if there is one."""
    old = result.variant_result
    return replace(result, variant_result=replace(old, facts={**old.facts, **facts})) if old else result


def with_model(result: CaseResult) -> CaseResult:
    """Add the model's accuracy and sizes to the variant result, if a probe has read them."""
    numbers = result.metric_values.numbers if result.metric_values else {}
    return with_facts(result, {name: numbers[name] for name in MODEL_METRICS if name in numbers})


def claimed(race: Race, index: int) -> list[Verdict]:
    """Check the contracts of a variant about its time relative to others of its race."""
    case = race.entrants[index].case
    failure = race.failures.get(index)
    rows = []
    for claim in case.claims_on(TIME):
        if failure is not None:
            contract_result = contracts.unreadable(f"the benchmark broke in a race against {claim.other}: {failure}")
        else:
            contract_result = contracts.of_times(claim, _against(race, index, claim), race.thresholds(index).tolerance)
        rows.append(contracts.claim_row(case, claim, contract_result))
    return rows


def twice(first: Verdict, second: Verdict | None) -> Verdict:
    """Return the verdict on a contract that a first race found broken, after a second race.

    Args:
        second: Verdict of the second race; ``None`` if the run was interrupted before its end.
    """
    text = first.reason.message
    if second is None:
        reason = Reason(ReasonCode.INTERRUPTED, f"the run was interrupted before this was confirmed: {text}")
    elif second.outcome is Outcome.INCONCLUSIVE or second.outcome is Outcome.UNCHANGED:
        reason = Reason(ReasonCode.NOT_CONFIRMED, f"a first race said: {text}; a second said: {second.reason.message}")
    else:
        return replace(second, reason=Reason(second.reason.code, f"{second.reason.message}; found twice"))
    return replace(first, outcome=Outcome.INCONCLUSIVE, reason=reason)


def _against(race: Race, index: int, claim: Claim) -> Comparison | str:
    """Compare times as named variant / this variant; a string says why that is impossible."""
    other = next((i for i in race.working if race.entrants[i].case.variant == claim.levels), None)
    if other is None:
        return "that variant is not part of this run, or broke"
    effects = race.effects(other, index)
    if not effects:
        return "the two variants have no launch in common"
    shared = race.share_zygote(other, index)
    rounds, cases, own = race.rounds(index), race.config.cases, race.thresholds(index)
    if claim.name == "as_fast":
        # Equal speed is proved in the same way as `unchanged`, with an interval at its own level.
        found = decide(effects, rounds, race.policy, cases=cases, shared_zygote=shared, final=False, thresholds=own)
        return found.comparison
    return compare(effects, rounds, race.policy, cases=cases, shared_zygote=shared, thresholds=own)


_PERCENTILES = ((90, 64), (99, 662))
"""Percentile, and the rounds that it needs at least (MLPerf's early stopping: 64 and 662 for 90% and 99%)."""


def percentiles(sample: Sample) -> dict[str, float]:
    """Return ``p50``, ``p90`` and ``p99`` of single iterations in seconds, as far as there are enough rounds.

    Empty if a round is a mean of several iterations, since a mean hides the tail.
    """
    if any(run.iterations != 1 for run in sample.runs):
        return {}
    found = {"p50": median(sample.seconds)}
    cuts = quantiles(sample.seconds, n=100) if len(sample.seconds) >= _PERCENTILES[0][1] else []
    return found | {f"p{number}": cuts[number - 1] for number, rounds in _PERCENTILES if len(sample.seconds) >= rounds}


def new(case: Case, race: Race, index: int, reason: Reason) -> CaseResult:
    """Return the result of a case that was measured and has no comparison."""
    if race.abort_reason:
        return disturbed(case, race)
    sample = Sample(case, tuple(race.runs(index)))
    verdict = Verdict(
        case,
        Outcome.NEW,
        reason,
        launches=len(sample.runs),
        rounds=race.rounds(index),
        wall_seconds=race.wall_seconds,
    )
    return CaseResult(case, verdict, sample=sample)


def of_sides(case: Case, confirmed_race: ConfirmedRace, note: str = "") -> CaseResult:
    """Return the result of a case after a race of two sides.

    Args:
        note: Text to append to the reason of the verdict.

    Raises:
        BenchmarkError: The race ended without a decision.
    """
    if confirmed_race.failures:
        # The contender's own failure is more informative than the baseline's.
        entrant, failure = max(confirmed_race.failures.items())
        side = ("baseline", "contender")[entrant]
        if isinstance(failure, BenchmarkSkipped) and len(confirmed_race.failures) == 1:
            reason = Reason(ReasonCode.SKIPPED_ON_ONE_SIDE, f"the {side} side cannot run it: {failure}")
            return CaseResult(case, Verdict(case, Outcome.INCOMPARABLE, reason))
        return failed(case, failure, f"on the {side} side: ")
    if aborted := [race for race in confirmed_race.races if race.abort_reason]:
        return disturbed(case, aborted[0])
    if unlike := confirmed_race.unlike:
        reason = Reason(ReasonCode.OTHER_NATIVE_CODE, unlike)
        return CaseResult(case, Verdict(case, Outcome.INCOMPARABLE, reason, wall_seconds=confirmed_race.wall_seconds))
    decision = confirmed_race.decision
    if decision is None or decision.outcome is None:
        raise BenchmarkError(f"{case.name}: the race ended without a decision")
    baseline, contender = (Sample(case, tuple(confirmed_race.runs(side))) for side in (0, 1))
    used = confirmed_race.thresholds
    shown = judged(case, confirmed_race.usual, used)
    own = f"own thresholds: {described(shown)}" if shown.thresholds else ""
    taken = any(REPORTED in run.facts for run in contender.runs)
    itself = "one time per launch, as the benchmark takes and reports it itself" * taken
    speeds = _two_speeds(baseline, contender, confirmed_race.policy)
    calls = calls_of(baseline.runs, contender.runs)
    by_tail = decision.statistic is Statistic.TAIL or decision.reason.code is ReasonCode.TAIL_NOT_DECIDED
    tail = units.calls(*calls) if calls and by_tail else ""
    reason, notes = decision.reason, [tail, itself, _per_item(baseline, contender), speeds, own, ignored(case, used), note]
    verdict = Verdict(
        case=shown,
        outcome=decision.outcome,
        reason=Reason(reason.code, "; ".join([reason.message, *filter(None, notes)])),
        ratio=decision.comparison.ratio,
        rates=rates(baseline.runs, contender.runs, decision.comparison.ratio),
        calls=calls,
        tail=confirmed_race.tail,
        launches=confirmed_race.launches,
        rounds=confirmed_race.rounds,
        wall_seconds=confirmed_race.wall_seconds,
    )
    metrics = []
    if (first := confirmed_race.first_call) is not None and first.outcome is not None:
        ratio = first.comparison.ratio
        metrics.append(
            Verdict(
                case, first.outcome, first.reason, FIRST_CALL, ratio, first.comparison.launches, first.comparison.rounds
            )
        )
    if confirmed_race.memory is not None:
        metrics.append(confirmed_race.memory)
    return CaseResult(case, verdict, sample=contender, rival=baseline, metrics=tuple(metrics))


def _per_item(baseline: Sample, contender: Sample) -> str:
    """Say that times compare per item, if a call has another number of items than before."""
    if not (baseline.runs and contender.runs and log_items_ratio(baseline.runs[0], contender.runs[0])):
        return ""
    before, now = (sample.runs[0].facts["items"] for sample in (baseline, contender))
    return f"per item, as a call had {before:g} items and has {now:g} now"


def _two_speeds(baseline: Sample, contender: Sample, policy: Policy) -> str:
    """Say that calls have two speeds, and how many of each side are slow."""
    found = two_speeds([[run.seconds for run in sample.runs] for sample in (baseline, contender)], policy)
    if found is None:
        return ""
    before, now = (f"{share:.0%}" for share in found.shares)
    return (
        f"calls take {units.time(found.fast)} or {units.time(found.slow)}: {before} of the baseline's were slow, "
        f"and {now} of the contender's"
    )


def disturbed(case: Case, race: Race) -> CaseResult:
    """Return the result of a case whose race was aborted because of disturbances from outside."""
    text = f"not decided, as {len(race.disturbed)} launches were discarded: {race.abort_reason}"
    reason = Reason(ReasonCode.DISTURBED, text)
    launches, seconds = len(race.launches), race.wall_seconds
    return CaseResult(case, Verdict(case, Outcome.INCONCLUSIVE, reason, launches=launches, wall_seconds=seconds))


def failed(case: Case, failure: TfbenchError, where: str = "") -> CaseResult:
    """Return the result of a case whose benchmark broke, or cannot run here."""
    if isinstance(failure, BenchmarkSkipped):
        return CaseResult(case, skip=str(failure))
    codes: dict[type[TfbenchError], ReasonCode] = {WorkerDied: ReasonCode.DIED, WorkerHung: ReasonCode.HUNG}
    headline, _, rest = str(failure).partition("\n")
    reason = Reason(codes.get(type(failure), ReasonCode.BROKEN), f"{where}{headline}")
    output = "\n".join(filter(None, (rest, failure.output if isinstance(failure, BenchmarkError) else "")))
    return CaseResult(case, Verdict(case, Outcome.ERROR, reason), output=output)


def broken(case: Case, error: Exception) -> CaseResult:
    """Return the result of a case that could not be measured because a side or tfbench itself failed."""
    reason, output = reason_of(error)
    return CaseResult(case, Verdict(case, Outcome.ERROR, reason), output=output)


def not_measured(case: Case, why: str = "the run ended before this case was measured") -> CaseResult:
    """Return the result of a case that was due and has no measurement."""
    return CaseResult(case, Verdict(case, Outcome.ERROR, Reason(ReasonCode.NOT_MEASURED, why)))


def not_collected(name: str, error: str, skip: str = "", fix: str = "") -> CaseResult:
    """Return a result instead of the cases of a file or class that pytest could not collect.

    Args:
        name: Its node id.
        error: What pytest reports of it.
        skip: Why it skips itself, instead of an error.
        fix: What to do about the error, if that is known.
    """
    case = Case(name, name.rpartition("/")[2], name)
    if skip:
        return CaseResult(case, skip=skip)
    last = next((line for line in reversed(error.splitlines()) if line.strip()), "no reason given")
    text = f"pytest could not collect it, so its cases are unknown: {last.strip().removeprefix('E ').strip()}"
    text += f"; {fix}" if fix else ""
    return CaseResult(case, Verdict(case, Outcome.ERROR, Reason(ReasonCode.NOT_COLLECTED_HERE, text)), output=error)


def with_failure(result: CaseResult, metric: str, error: Exception) -> CaseResult:
    """Add a verdict `error` to a case that was timed before the failure.

    Args:
        metric: Name of the row.
    """
    reason, output = reason_of(error)
    reason = Reason(reason.code, f"the case was timed, then a later step failed: {reason.message}")
    row = Verdict(result.case, Outcome.ERROR, reason, metric)
    return replace(result, metrics=(*result.metrics, row), output=result.output or output)


def reason_of(error: Exception) -> tuple[Reason, str]:
    """Return a one-line reason for a failure, and the output that explains it."""
    if isinstance(error, TfbenchError):
        headline, _, rest = str(error).partition("\n")
        output = getattr(error, "output", "") or rest
        return Reason(ReasonCode.SIDE if isinstance(error, SideError) else ReasonCode.BROKEN, headline), output
    text = f"tfbench itself failed: {type(error).__name__}: {error}".partition("\n")[0]
    output = "".join(format_exception(error))
    return Reason(ReasonCode.INTERNAL, f"{text}; please report it with its traceback"), output


def _typical_facts(runs: Sequence[Run]) -> JSON:
    """Return the facts of the first launch, but the median over launches for facts that vary."""
    facts = dict(runs[0].facts)
    for sampled in (FIRST_CALL, PEAK_HOST_MEMORY, DISPATCH_TIME, GPU_CLOCK):
        if values := [run.facts[sampled] for run in runs if sampled in run.facts]:
            facts[sampled] = median(values)
    return facts
