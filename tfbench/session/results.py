"""From what a race gave to what became of a case."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median, quantiles

from tfbench.errors import BenchmarkError, BenchmarkSkipped, SideError, TfbenchError, WorkerDied, WorkerHung
from tfbench.metrics import contracts
from tfbench.metrics.catalog import DISPATCH_TIME, FIRST_CALL, GPU_CLOCK, MODEL_METRICS, PEAK_HOST_MEMORY
from tfbench.model import JSON, TIME, Case, Claim, Comparison, Outcome, Reason, Run, Sample, VariantResult, Verdict
from tfbench.race.confirmed import ConfirmedRace
from tfbench.race.race import Race
from tfbench.session.request import CaseResult
from tfbench.stats.alpha_spending import look_of
from tfbench.stats.verdict import compare

NO_BASELINE = Reason("no-baseline", "measured; compared with the other variants only, as no baseline was asked for")


def of_variant(race: Race, index: int) -> CaseResult:
    """One variant of a race of variants: how it stands to the reference."""
    case = race.entrants[index].case
    if (failure := race.failures.get(index)) is not None:
        return failed(case, failure)
    if race.abort_reason:
        return disturbed(case, race)
    sample = Sample(case, tuple(race.runs(index)))
    decision = race.decisions.get(index)
    reference = race.entrants[race.reference if race.reference is not None else index].case
    variant_result = VariantResult(
        case=case,
        reference=reference.name,
        median_seconds=median(sample.seconds),
        ratio=decision.comparison.ratio if decision else None,
        outcome=decision.outcome if decision else None,
        launches=len(sample.runs),
        rounds=race.rounds(index),
        facts=_typical_facts(sample.runs) | percentiles(sample),
    )
    return replace(
        new(case, race, index, NO_BASELINE), variant_result=variant_result, metrics=tuple(claimed(race, index))
    )


def with_model(result: CaseResult) -> CaseResult:
    """The result whose standing also says how accurate and how large the model is, where a probe has read it."""
    if result.variant_result is None or result.metric_values is None:
        return result
    numbers = result.metric_values.numbers
    reported = {name: numbers[name] for name in MODEL_METRICS if name in numbers}
    return replace(
        result, variant_result=replace(result.variant_result, facts={**result.variant_result.facts, **reported})
    )


def claimed(race: Race, index: int) -> list[Verdict]:
    """The rows of what a variant claims of its time and those of others of its race."""
    case = race.entrants[index].case
    failure = race.failures.get(index)
    rows = []
    for claim in case.claims_on(TIME):
        if failure is not None:
            contract_result = contracts.unreadable(f"in a race against {claim.other}, it broke: {failure}")
        else:
            contract_result = contracts.of_times(claim, _against(race, index, claim), race.policy)
        rows.append(contracts.claim_row(case, claim, contract_result))
    return rows


def _against(race: Race, index: int, claim: Claim) -> Comparison | str:
    """The times of the variant that is claimed about / those of this one, or why there are none."""
    mine = race.entrants[index].case
    other = next((i for i in race.working if race.entrants[i].case.variant == claim.levels), None)
    if other is None:
        return "that variant is no part of this run, or broke"
    effects = race.effects(other, index)
    if not effects:
        return "they shared no launch"
    shared = race.entrants[other].case.env == mine.env
    return compare(
        effects, race.rounds(index), race.policy, cases=race.config.cases,
        look=look_of(len(effects), race.policy.looks), shared_zygote=shared,
    )  # fmt: skip


_PERCENTILES = ((90, 64), (99, 662))
"""Percentile, and rounds below which it says nothing (MLPerf's early stopping: 64 and 662 for 90% and 99%)."""


def percentiles(sample: Sample) -> dict[str, float]:
    """``p50``, ``p90`` and ``p99`` of single iterations in seconds, those for which there are rounds enough.

    None where a round is a mean of several iterations, whose tails are gone.
    """
    if any(run.iterations != 1 for run in sample.runs):
        return {}
    found = {"p50": median(sample.seconds)}
    cuts = quantiles(sample.seconds, n=100) if len(sample.seconds) >= _PERCENTILES[0][1] else []
    return found | {f"p{number}": cuts[number - 1] for number, least in _PERCENTILES if len(sample.seconds) >= least}


def new(case: Case, race: Race, index: int, reason: Reason) -> CaseResult:
    """A case that was measured and has nothing to be compared with."""
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
    """Two sides of a case after their race.

    Args:
        note: What else is to be said in the reason.
    """
    if confirmed_race.failures:
        # The contender's own failure says more than that of the side it is compared with.
        entrant, failure = max(confirmed_race.failures.items())
        side = ("baseline", "contender")[entrant]
        if isinstance(failure, BenchmarkSkipped) and len(confirmed_race.failures) == 1:
            reason = Reason("skipped-on-one-side", f"the {side} side cannot run it: {failure}")
            return CaseResult(case, Verdict(case, Outcome.INCOMPARABLE, reason))
        return failed(case, failure, f"on the {side} side: ")
    if aborted := [race for race in confirmed_race.races if race.abort_reason]:
        return disturbed(case, aborted[0])
    decision = confirmed_race.decision
    if decision is None or decision.outcome is None:
        raise BenchmarkError(f"{case.name}: the race ended without a decision")
    reason = decision.reason
    verdict = Verdict(
        case=case,
        outcome=decision.outcome,
        reason=Reason(reason.code, f"{reason.message}; {note}") if note else reason,
        ratio=decision.comparison.ratio,
        launches=confirmed_race.launches,
        rounds=confirmed_race.rounds,
        wall_seconds=confirmed_race.wall_seconds,
    )
    metrics = []
    if (first := confirmed_race.first_call) is not None and first.outcome is not None:
        ratio = first.comparison.ratio
        metrics.append(
            Verdict(
                case, first.outcome, first.reason, FIRST_CALL, ratio, confirmed_race.launches, confirmed_race.launches
            )
        )
    if confirmed_race.memory is not None:
        metrics.append(confirmed_race.memory)
    samples = (Sample(case, tuple(confirmed_race.runs(side))) for side in (0, 1))
    return CaseResult(case, verdict, rival=next(samples), sample=next(samples), metrics=tuple(metrics))


def disturbed(case: Case, race: Race) -> CaseResult:
    """A case whose race was given up, since too many of its launches were disturbed from outside."""
    text = f"{len(race.disturbed)} launches were discarded, so nothing is decided: {race.abort_reason}"
    verdict = Verdict(
        case,
        Outcome.INCONCLUSIVE,
        Reason("disturbed", text),
        launches=len(race.launches),
        wall_seconds=race.wall_seconds,
    )
    return CaseResult(case, verdict)


def failed(case: Case, failure: TfbenchError, where: str = "") -> CaseResult:
    """A case that broke, or cannot run here."""
    if isinstance(failure, BenchmarkSkipped):
        return CaseResult(case, skip=str(failure))
    code = "died" if isinstance(failure, WorkerDied) else "hung" if isinstance(failure, WorkerHung) else "broken"
    output = failure.output if isinstance(failure, BenchmarkError) else ""
    return CaseResult(case, Verdict(case, Outcome.ERROR, Reason(code, f"{where}{failure}")), output=output)


def broken(case: Case, error: SideError) -> CaseResult:
    """A case whose side could not be made."""
    headline, _, output = str(error).partition("\n")
    return CaseResult(case, Verdict(case, Outcome.ERROR, Reason("side", headline)), output=output)


def _typical_facts(runs: Sequence[Run]) -> JSON:
    """Facts of a case: the same in every launch, except what each gives a sample of, whose median is taken."""
    facts = dict(runs[0].facts)
    for sampled in (FIRST_CALL, PEAK_HOST_MEMORY, DISPATCH_TIME, GPU_CLOCK):
        if values := [run.facts[sampled] for run in runs if sampled in run.facts]:
            facts[sampled] = median(values)
    return facts
