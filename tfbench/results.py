"""From what a race gave to what became of a case."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from tfbench.errors import BenchmarkError, BenchmarkSkipped, SideError, TfbenchError, WorkerDied, WorkerHung
from tfbench.model import JSON, Case, Outcome, Reason, Run, Sample, Standing, Verdict
from tfbench.question import Result
from tfbench.race.contest import Contest
from tfbench.race.sequential import Race

NO_BASELINE = Reason("no-baseline", "measured; compared with the other variants only, as no baseline was asked for")


def of_variant(race: Race, index: int) -> Result:
    """One variant of a race of variants: how it stands to the reference."""
    case = race.entrants[index].case
    if (failure := race.failures.get(index)) is not None:
        return failed(case, failure)
    sample = Sample(case, tuple(race.runs(index)))
    decision = race.decisions.get(index)
    reference = race.entrants[race.reference if race.reference is not None else index].case
    standing = Standing(
        case=case,
        reference=reference.name,
        median_seconds=median(sample.seconds),
        ratio=decision.comparison.ratio if decision else None,
        outcome=decision.outcome if decision else None,
        launches=len(sample.runs),
        rounds=race.rounds(index),
        facts=_typical_facts(sample.runs),
    )
    return replace(new(case, race, index, NO_BASELINE), standing=standing)


def new(case: Case, race: Race, index: int, reason: Reason) -> Result:
    """A case that was measured and has nothing to be compared with."""
    sample = Sample(case, tuple(race.runs(index)))
    verdict = Verdict(
        case,
        Outcome.NEW,
        reason,
        launches=len(sample.runs),
        rounds=race.rounds(index),
        wall_seconds=race.wall_seconds,
    )
    return Result(case, verdict, sample=sample)


def of_sides(case: Case, contest: Contest, note: str = "") -> Result:
    """Two sides of a case after their contest.

    Args:
        note: What else is to be said in the reason.
    """
    if contest.failures:
        # The contender's own failure says more than that of the side it is compared with.
        entrant, failure = max(contest.failures.items())
        side = ("baseline", "contender")[entrant]
        if isinstance(failure, BenchmarkSkipped) and len(contest.failures) == 1:
            reason = Reason("skipped-on-one-side", f"the {side} side cannot run it: {failure}")
            return Result(case, Verdict(case, Outcome.INCOMPARABLE, reason))
        return failed(case, failure, f"on the {side} side: ")
    decision = contest.decision
    if decision is None or decision.outcome is None:
        raise BenchmarkError(f"{case.name}: the race ended without a decision")
    reason = decision.reason
    verdict = Verdict(
        case=case,
        outcome=decision.outcome,
        reason=Reason(reason.code, f"{reason.message}; {note}") if note else reason,
        ratio=decision.comparison.ratio,
        launches=contest.launches,
        rounds=contest.rounds,
        wall_seconds=contest.wall_seconds,
    )
    return Result(case, verdict, sample=Sample(case, tuple(contest.runs(1))))


def failed(case: Case, failure: TfbenchError, where: str = "") -> Result:
    """A case that broke, or cannot run here."""
    if isinstance(failure, BenchmarkSkipped):
        return Result(case, skip=str(failure))
    code = "died" if isinstance(failure, WorkerDied) else "hung" if isinstance(failure, WorkerHung) else "broken"
    output = failure.output if isinstance(failure, BenchmarkError) else ""
    return Result(case, Verdict(case, Outcome.ERROR, Reason(code, f"{where}{failure}")), output=output)


def broken(case: Case, error: SideError) -> Result:
    """A case whose side could not be made."""
    headline, _, output = str(error).partition("\n")
    return Result(case, Verdict(case, Outcome.ERROR, Reason("side", headline)), output=output)


def _typical_facts(runs: Sequence[Run]) -> JSON:
    """Facts of a case: the same in every launch, except the first call, whose median is taken."""
    facts = dict(runs[0].facts)
    facts["first_call"] = median(run.facts["first_call"] for run in runs)
    return facts
