"""Turn races and probes into verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import median, quantiles
from traceback import format_exception
from typing import Any

from tfbench import errors
from tfbench.fs import shortage
from tfbench.metrics import catalog, contracts, exact, parity
from tfbench.metrics.parity import Output
from tfbench.model import FIRST_CALL, PEAK_HOST_MEMORY
from tfbench.model.case import CALL_SECONDS, COVERED, DOUBT, JSON, NATIVE, REPORTED, TIME, Case, Claim
from tfbench.model.measurement import MetricValues, Run, Sample, Statistic
from tfbench.model.reasons import Note, Reason, ReasonCode, because
from tfbench.model.report import Comparison, Outcome, VariantResult, Verdict
from tfbench.policy import Policy
from tfbench.race.confirmed import ConfirmedRace, cache_of
from tfbench.race.launch import Entrant, Failure
from tfbench.race.prober import Prober
from tfbench.race.race import Race
from tfbench.session.request import CaseResult
from tfbench.session.resume import ExecutedCode
from tfbench.sides.spec import Side
from tfbench.stats.alpha_spending import ignored, judged
from tfbench.stats.interval import interval, launch_effect
from tfbench.stats.rounds import log_items_ratio, rates, two_speeds
from tfbench.stats.verdict import P90_ROUNDS, Terms, calls_of, compare, decide, retrace

# Turn a race, or the failure that ended it, into results of its cases


NO_BASELINE = because(ReasonCode.NO_BASELINE, because(Note.VARIANTS_ONLY))


def untimed(case: Case, outcome: Outcome, reason: Reason, output: str = "", **measured: Any) -> CaseResult:
    """Return the result of a case without times, with further fields of the verdict in ``measured``.

    ``output`` is the last output of the process that failed.
    """
    return CaseResult(case, Verdict.of(case, outcome, reason, **measured), output=output)


_UNGATED = (Outcome.REGRESSED, Outcome.INCOMPARABLE, Outcome.INCONCLUSIVE)
"""What the mark of a case can keep from preventing a pass. An error and a missing case show nothing of its speed."""


def ungated(row: Verdict, why: str) -> Verdict:
    """Return a verdict on a case whose mark says why it is shown and not gated; the same one if ``why`` is empty."""
    if not why or row.outcome not in _UNGATED:
        return row
    return row.changed(outcome=Outcome.UNGATED, reason=because(ReasonCode.UNGATED, row.reason, why=why))


def of_variant(race: Race, index: int) -> CaseResult:
    """Return the result of one variant, relative to the reference variant of its race."""
    case = race.entrants[index].case
    if (failure := race.failures.get(index)) is not None:
        return failed(case, failure)
    result = new(case, race, index, NO_BASELINE)
    if result.sample is None:  # the race was disturbed
        return result
    decision = race.decisions.get(index)
    variant_result = VariantResult.about(
        case, reference=race.entrants[index if race.reference is None else race.reference].case.name,
        median_seconds=median(result.sample.seconds), ratio=decision.comparison.ratio if decision else None,
        outcome=decision.outcome if decision else None, launches=len(result.sample.runs), rounds=race.rounds(index),
        facts=_typical_facts(result.sample.runs) | percentiles(result.sample), cpus=case.cpus,
    )  # fmt: skip
    return replace(result, variant_result=variant_result, metrics=tuple(claimed(race, index)))


def with_facts(result: CaseResult, facts: JSON) -> CaseResult:
    """Add facts to the variant result, if there is one."""
    old = result.variant_result
    return replace(result, variant_result=old.changed(facts={**old.facts, **facts})) if old else result


def with_model(result: CaseResult) -> CaseResult:
    """Add the model's accuracy and sizes to the variant result, if a probe has read them."""
    numbers = result.metric_values.numbers if result.metric_values else {}
    return with_facts(result, {name: numbers[name] for name in catalog.MODEL_METRICS if name in numbers})


def claimed(race: Race, index: int) -> list[Verdict]:
    """Check the contracts of a variant about its time relative to others of its race."""
    case, failure = race.entrants[index].case, race.failures.get(index)

    def checked(claim: Claim) -> contracts.ContractResult:
        if failure is not None:
            return contracts.unreadable(Note.BROKE, other=claim.other, error=str(failure))
        return contracts.of_times(claim, _against(race, index, claim), race.thresholds(index).tolerance)

    return [contracts.claim_row(case, claim, checked(claim)) for claim in case.claims_on(TIME)]


def limited(result: CaseResult, policy: Policy, cases: int) -> CaseResult:
    """Check the limits in seconds that a case states, by the times of all launches here.

    Times of one program differ between launches as much as first calls do. ``cases`` share the alpha.
    """
    if not (claims := result.case.claims_on(CALL_SECONDS)) or result.sample is None:
        return result
    rows, runs, alpha = [], result.sample.runs, min(policy.alpha_case, policy.alpha / max(1, cases))
    for claim in claims:
        plain = [launch_effect([claim.bound] * len(run.seconds), run.seconds, index) for index, run in enumerate(runs)]
        effects = [replace(one, doubt=(0.0, run.facts.get(DOUBT, 0.0))) for one, run in zip(plain, runs, strict=True)]
        ratio = interval(effects, alpha, policy, shared_zygote=False, expected=policy.once)
        comparison = Comparison(ratio, len(runs), sum(len(run.seconds) for run in runs))
        rows.append(contracts.claim_row(result.case, claim, contracts.of_times(claim, comparison, 0.0)))
    return replace(result, metrics=(*result.metrics, *rows))


def _against(race: Race, index: int, claim: Claim) -> Comparison | str:
    """Compare times as named variant / this variant; a string says why that is impossible."""
    other = next((i for i in race.working if race.entrants[i].case.variant == claim.levels), None)
    if other is None:
        return "that variant is not part of this run, or broke"
    effects = race.effects(other, index)
    if not effects:
        return "the two variants have no launch in common"
    if retrace(race.runs(index)):
        return "most calls of this variant trace a function again, so calls that find it traced are not compared"
    terms = Terms(race.policy, race.config.cases, race.share_zygote(other, index), race.thresholds(index))
    if claim.name == "as_fast":
        # Equal speed is proved in the same way as `unchanged`, with an interval at its own level.
        return decide(effects, race.rounds(index), terms, False).comparison
    return compare(effects, race.rounds(index), terms)


def percentiles(sample: Sample) -> dict[str, float]:
    """Return ``p90`` of single iterations in seconds; empty if rounds are too few, or means, which hide the tail."""
    single = all(run.iterations == 1 for run in sample.runs)
    return {"p90": quantiles(sample.seconds, n=100)[89]} if single and len(sample.seconds) >= P90_ROUNDS else {}


def new(case: Case, race: Race, index: int, reason: Reason) -> CaseResult:
    """Return the result of a case that was measured and has no comparison."""
    if race.abort_reason:
        return disturbed(case, race)
    sample = Sample(case, tuple(race.runs(index)))
    size: JSON = {"launches": len(sample.runs), "rounds": race.rounds(index), "wall_seconds": race.wall_seconds}
    return replace(untimed(case, Outcome.NEW, reason.noted(cache_note(sample)), **size), sample=sample)


def of_sides(case: Case, confirmed_race: ConfirmedRace, *notes: Reason | None) -> CaseResult:
    """Return the result of a case after a race of two sides, with ``notes`` added to the reason of the verdict.

    Raises `BenchmarkError` if the race ended without a decision.
    """
    if confirmed_race.failures:
        # The contender's own failure is more informative than the baseline's.
        entrant, failure = max(confirmed_race.failures.items())
        side = ("baseline", "contender")[entrant]
        if isinstance(failure, errors.BenchmarkSkipped) and len(confirmed_race.failures) == 1:
            return skipped_on_one_side(case, because(Note.CANNOT_RUN, side=side, why=str(failure)))
        return failed(case, failure, side=side)
    if aborted := [race for race in confirmed_race.races if race.abort_reason]:
        return disturbed(case, aborted[0])
    if unlike := confirmed_race.unlike:
        return untimed(case, Outcome.INCOMPARABLE, unlike, wall_seconds=confirmed_race.wall_seconds)
    decision = confirmed_race.decision
    if decision is None or decision.outcome is None:
        raise errors.BenchmarkError(f"{case.name}: the race ended without a decision")
    baseline, contender = (Sample(case, tuple(confirmed_race.runs(side))) for side in (0, 1))
    used = confirmed_race.first.thresholds(1)
    shown = judged(case, confirmed_race.first.usual, used)
    calls = calls_of(baseline.runs, contender.runs)
    slow = (ReasonCode.TAIL_NOT_DECIDED, ReasonCode.RARE_SLOW_CALLS)
    by_tail = decision.statistic is Statistic.TAIL or decision.reason.code in slow
    speeds = two_speeds([[run.seconds for run in sample.runs] for sample in (baseline, contender)])
    reason = decision.reason.noted(
        because(Note.CALLS, before=calls[0], now=calls[1]) if calls and by_tail else None,
        because(Note.OWN_TIMES) if _takes_own_time(contender) else None,
        cache_note(contender),
        _per_item(baseline, contender),
        because(Note.TWO_SPEEDS, fast=speeds.fast, slow=speeds.slow, shares=list(speeds.shares)) if speeds else None,
        because(Note.OWN_THRESHOLDS, **dict(shown.thresholds)) if shown.thresholds else None,
        ignored(case, used),
        *notes,
    )
    verdict = Verdict.of(
        shown, outcome=decision.outcome, reason=reason, ratio=decision.comparison.ratio,
        rates=rates(baseline.runs, contender.runs, decision.comparison.ratio), calls=calls, tail=confirmed_race.tail,
        launches=confirmed_race.launches, rounds=confirmed_race.rounds, wall_seconds=confirmed_race.wall_seconds,
    )  # fmt: skip
    metrics = []
    if (first := confirmed_race.first_call) is not None and first.outcome is not None:
        metrics.append(Verdict.of(case, first.outcome, first.reason, FIRST_CALL, **first.comparison.columns))
    metrics += confirmed_race.sampled
    return CaseResult(case, verdict, sample=contender, baseline=baseline, metrics=tuple(metrics))


def with_covered(result: CaseResult) -> CaseResult:
    """Add to the reason of an unchanged time which calls of a process it covers, and how many a probe has made."""
    verdict, runs = result.verdict, result.sample.runs if result.sample else ()
    covered = [run.facts[COVERED] for run in runs if COVERED in run.facts]
    if verdict is None or verdict.outcome is not Outcome.UNCHANGED or not covered:
        return result
    first, last, seconds = map(max, zip(*covered, strict=True))
    probed = result.metric_values.counts.get(catalog.MANY_CALLS, {}).get("calls", 0) if result.metric_values else 0
    note = because(Note.COVERED, first=first, last=last, seconds=seconds, probed=probed)
    return replace(result, verdict=verdict.noted(note))


def cache_note(sample: Sample) -> Reason | None:
    """Note how the calls found the cache, ``None`` where no one asked on a CPU."""
    state = cache_of(sample.runs)
    return because(Note.CACHE, state=state) if state else None


def _per_item(baseline: Sample, contender: Sample) -> Reason | None:
    """Note that times compare per item, if a call has another number of items than before."""
    if not (baseline.runs and contender.runs and log_items_ratio(baseline.runs[0], contender.runs[0])):
        return None
    before, now = (sample.runs[0].facts["items"] for sample in (baseline, contender))
    return because(Note.PER_ITEM, before=before, now=now)


def skipped_on_one_side(case: Case, note: Reason) -> CaseResult:
    """Return the result of a case that one side skips, as the note says."""
    return untimed(case, Outcome.INCOMPARABLE, because(ReasonCode.SKIPPED_ON_ONE_SIDE, note))


def disturbed(case: Case, race: Race) -> CaseResult:
    """Return the result of a case whose race was aborted because of disturbances from outside."""
    reason = because(ReasonCode.DISTURBED, launches=len(race.disturbed), why=race.abort_reason)
    launches, seconds = len(race.launches), race.wall_seconds
    return untimed(case, Outcome.INCONCLUSIVE, reason, launches=launches, wall_seconds=seconds)


def failed(case: Case, failure: Exception, **side: str) -> CaseResult:
    """Return the result of a case that cannot run here, or that broke: its benchmark, on a ``side`` if given, or tfbench itself."""
    if isinstance(failure, errors.BenchmarkSkipped):
        return CaseResult(case, skip=str(failure))
    return untimed(case, Outcome.ERROR, *reason_of(failure, **side))


def not_measured(case: Case, why: str = "the run ended before this case was measured") -> CaseResult:
    """Return the result of a case that was due and has no measurement."""
    return untimed(case, Outcome.ERROR, because(ReasonCode.NOT_MEASURED, why=why))


def not_collected(name: str, error: str, skip: str = "", fix: str = "") -> CaseResult:
    """Return a result instead of the cases of a file or class that pytest could not collect.

    ``skip`` is why it skips itself, instead of an error, and ``fix`` what to do about the error, if that is known.
    """
    case = Case(name, name.rpartition("/")[2], name)
    if skip:
        return CaseResult(case, skip=skip)
    headline = errors.headline_of(error) or "no reason given"
    note = because(Note.FIX, fix=fix) if fix else None
    return untimed(case, Outcome.ERROR, because(ReasonCode.NOT_COLLECTED_HERE, note, error=headline), error)


def with_failure(result: CaseResult, metric: str, error: Exception) -> CaseResult:
    """Add a verdict `error` to a case that was timed before the failure."""
    reason, output = reason_of(error)
    note = because(Note.LATER_STEP, reason)
    row = Verdict.of(result.case, Outcome.ERROR, Reason(reason.code, "").noted(note), metric)
    return replace(result, metrics=(*result.metrics, row), output=result.output or output)


def reason_of(error: Exception, **side: str) -> tuple[Reason, str]:
    """Return a one-line reason for a failure, on a ``side`` if given, and the output that explains it."""
    if why := shortage(error.__cause__ or error):
        return because(ReasonCode.BROKEN, error=why), ""
    if isinstance(error, errors.TfbenchError):
        code = next((code for kind, code in _CODES.items() if isinstance(error, kind)), ReasonCode.BROKEN)
        output = "\n".join(filter(None, (error.rest, getattr(error, "output", ""))))
        return because(code, error=error.headline, **side), output
    headline, _, _ = f"{type(error).__name__}: {error}".partition("\n")
    return because(ReasonCode.INTERNAL, error=headline), "".join(format_exception(error))


_CODES = {errors.SideError: ReasonCode.SIDE, errors.WorkerDied: ReasonCode.DIED, errors.WorkerHung: ReasonCode.HUNG}


def _typical_facts(runs: Sequence[Run]) -> JSON:
    """Return the facts of the first launch, but the median over launches for facts that vary."""
    facts = dict(runs[0].facts)
    for sampled in (FIRST_CALL, PEAK_HOST_MEMORY, catalog.DISPATCH_TIME, catalog.GPU_CLOCK):
        if values := [run.facts[sampled] for run in runs if sampled in run.facts]:
            facts[sampled] = median(values)
    return facts


# Judge the metrics other than time: against the other side, and against the contracts of the case


PROBES = "probes"
"""Name of the row that reports a failed probe."""


@dataclass(frozen=True)
class BaselineValues:
    """The other side of a comparison: saved, or live and to be probed."""

    metric_values: MetricValues = field(default_factory=MetricValues)
    """Saved values, unless there is an entrant to probe."""
    entrant: Entrant | None = None
    """The case on the other side, to be probed."""
    facts: Sequence[JSON] = ()
    """Facts of each saved launch. A race judges those of its own launches."""
    differences: Sequence[str] = ()
    """Differences of its environment, one phrase each."""
    machines: Sequence[str] = ()
    """Differences of its machine, one phrase each."""


@dataclass(frozen=True)
class _Probed:
    metric_values: MetricValues
    contracts: JSON = field(default_factory=dict)
    outputs: Sequence[Output] = ()
    executed: ExecutedCode = field(default_factory=ExecutedCode)
    difference: parity.Difference | None = None
    """Of the outputs from those of the reference variant, if there is one."""
    foreign: Sequence[str] = ()
    """Files of the working tree that the process has read although another tree replaces that."""


class MetricChecker:
    """Probe cases, each once per side, and judge what the probes read.

    ``cases`` are all cases of the run. Outputs of a variant are compared with those of its reference among them.
    ``sharing`` cases share an alpha.
    """

    def __init__(self, prober: Prober, policy: Policy, cases: Sequence[Case], sharing: int) -> None:
        self._prober = prober
        self._policy = policy
        self._sharing = sharing
        self._references = {case.group: case for case in reversed(cases) if case.reference}
        self._others = {(case.group, case.variant): case for case in cases}
        self._probed: dict[tuple[str, str], _Probed | Failure] = {}
        """Names of a side and a case -> what the probe read, or why it failed."""

    def look(self, entrants: Iterable[Entrant], progress: Callable[[str], None] = lambda done: None) -> None:
        """Probe these entrants at once, together with the variants that they are compared with.

        A case that was probed on a side before is not probed again. ``progress`` is called after each entrant with the
        number probed so far, such as ``3 of 8``. Raises `SideError` if a zygote does not start.
        """
        needed = {_key(member): member for entrant in entrants for member in self._with_compared(entrant)}
        missing = [entrant for key, entrant in needed.items() if key not in self._probed]
        for done, (entrant, probed) in enumerate(zip(missing, self._probe(missing), strict=True), start=1):
            self._probed[_key(entrant)] = probed  # stored now, since the next may be compared with it
            progress(f"{done} of {len(missing)}")

    def _with_compared(self, entrant: Entrant) -> list[Entrant]:
        """Return the entrants to probe for this one: the variants it is compared with, reference first, then itself."""
        case = entrant.case
        claimed = [self._others.get((case.group, claim.levels)) for claim in self._readable(case)]
        cases = (self._references.get(case.group), *claimed, case)
        return [Entrant(case, entrant.side) for case in cases if case is not None]

    def executed(self, *entrants: Entrant) -> list[ExecutedCode | None]:
        """Return the code that each entrant executes, or ``None`` if its probing launch fails.

        Raises `SideError` if a zygote does not start.
        """
        self.look(entrants)
        outputs = [self._probed[_key(entrant)] for entrant in entrants]
        return [probed.executed if isinstance(probed, _Probed) else None for probed in outputs]

    def _probe(self, entrants: Sequence[Entrant], pairs: Sequence[int] = ()) -> Iterator[_Probed | Failure]:
        """Probe these entrants, from the first pair of zygotes or from ``pairs``, where each variant follows its reference."""
        references = {} if pairs else self._probed
        for entrant, probe_output in zip(entrants, self._prober.probe(entrants, pairs), strict=True):
            if isinstance(probe_output, Exception):
                yield probe_output
                continue
            values, facts = catalog.read(probe_output), probe_output.facts
            executed, foreign = ExecutedCode.of_probe(probe_output), facts.get(NATIVE, {}).get("foreign", ())
            probed = _Probed(values, facts.get("contracts", {}), probe_output.outputs, executed, foreign=foreign)
            if not self._is_reference(entrant.case):
                reference = references.get((entrant.side.name, self._references[entrant.case.group].name))
                # Other cases need the outputs of reference variants only. The others are dropped to free their memory.
                probed = replace(self._with_parity(probed, reference), outputs=())
            elif pairs:
                references[_key(entrant)] = probed
            yield probed

    def _is_reference(self, case: Case) -> bool:
        reference = self._references.get(case.group)
        return reference is None or reference.name == case.name

    @staticmethod
    def _with_parity(probed: _Probed, reference: _Probed | Failure | None) -> _Probed:
        """Add the error of the outputs relative to the reference variant on the same side, or why it is unknown, see `_error`."""
        values = probed.metric_values
        if isinstance(reference, _Probed) and reference.outputs and probed.outputs:
            difference = parity.compare(probed.outputs, reference.outputs)
            numbers = {**values.numbers, catalog.PARITY: difference.error}
            return replace(probed, metric_values=replace(values, numbers=numbers), difference=difference)
        why = "" if isinstance(reference, errors.BenchmarkSkipped) else "the reference variant could not be probed"
        if isinstance(reference, _Probed):
            why = {**reference.metric_values.absent, **values.absent}.get("nonfinite", "the step has no output")
        return replace(probed, metric_values=replace(values, absent={**values.absent, catalog.PARITY: why}))

    # Judging

    def checked(
        self, result: CaseResult, side: Side, baseline: BaselineValues | None, group: Sequence[Case] = ()
    ) -> CaseResult:
        """Add a row for each metric and contract, and append changes that explain the time to its reason.

        Raises `SideError` if a zygote does not start.

        Args:
            side: The contender.
            baseline: What the case is compared with; ``None`` without a comparison.
            group: Further cases to probe at the same time.
        """
        case = result.case
        assert result.verdict is not None
        own_times = _takes_own_time(result.sample) and (baseline is None or _takes_own_time(result.baseline))
        if own_times and not case.claims:
            return result  # there is no step to read, and a probing launch would repeat the whole method
        there = baseline.entrant if baseline else None
        self.look([*(Entrant(member, side) for member in (*group, case)), *([there] if there else [])])
        mine = self._probed[side.name, case.name]
        theirs = self._probed[_key(there)] if there else None
        if there and isinstance(theirs, _Probed) and theirs.foreign:
            note = because(Note.SHARED_LIBRARY, side=there.side.name, spec=there.side.spec, libraries=theirs.foreign)
            reason = because(ReasonCode.OTHER_NATIVE_CODE, note)
            return untimed(case, Outcome.INCOMPARABLE, reason, wall_seconds=result.verdict.wall_seconds)
        if isinstance(mine, Exception):
            return replace(result, metrics=(*result.metrics, _not_probed(case, "the case", mine)))
        rows, explained = self._compared(result, side, mine, baseline or BaselineValues())
        if baseline is None:
            why = result.verdict.reason if result.verdict.outcome is Outcome.NEW else NO_BASELINE
            own = (row for row in rows if mine.difference or row.metric != catalog.PARITY)  # a reference has no error
            rows = [row.changed(reason=why) for row in own]
        rows += contracts.of_case(case, mine.contracts, mine.metric_values, exact.peaks(_facts(result)))
        rows += [self._claimed(case, side, claim, mine.metric_values) for claim in self._readable(case)]
        if catalog.PARITY in mine.contracts:
            equal = contracts.parity(mine.contracts[catalog.PARITY], self._error(case, mine))
            rows.append(contracts.row(case, catalog.PARITY, equal))
        verdict = result.verdict
        if explained:
            verdict = verdict.noted(because(Note.OTHER_METRICS, *explained))
        return replace(result, verdict=verdict, metrics=(*result.metrics, *rows), metric_values=mine.metric_values)

    @staticmethod
    def _readable(case: Case) -> list[Claim]:
        return case.claims_on(*(metric.name for metric in catalog.PROBED))

    def _claimed(self, case: Case, side: Side, claim: Claim, mine: MetricValues) -> Verdict:
        other = self._others.get((case.group, claim.levels))
        probed = self._probed.get((side.name, other.name)) if other else None
        other_values: MetricValues | str = ""
        if isinstance(probed, _Probed):
            other_values = probed.metric_values
        elif probed is not None and not isinstance(probed, errors.BenchmarkSkipped):
            other_values = f"its probe failed: {probed}"
        return contracts.claim_row(case, claim, contracts.of_metric_values(claim, mine, other_values))

    def _error(self, case: Case, mine: _Probed) -> parity.Difference | str:
        """Return how the outputs differ from the reference variant's, or why that is unknown: ``""`` without that variant."""
        if self._is_reference(case):
            return parity.Difference(0.0) if case.reference else ""
        return mine.difference or mine.metric_values.absent[catalog.PARITY]

    def _compared(
        self, result: CaseResult, side: Side, mine: _Probed, baseline: BaselineValues
    ) -> tuple[list[Verdict], list[Reason]]:
        """Return a row per metric, and the changes that explain a changed time.

        A change counts only if further launches of each probed side, from other zygotes, agree with the first. A race has
        judged the memory of its sides itself.
        """
        case, facts = result.case, _facts(result)
        values, launches = baseline.metric_values, [(Entrant(case, side), [mine.metric_values])]
        if (entrant := baseline.entrant) is not None:
            probed = self._probed[_key(entrant)]
            if isinstance(probed, Exception):
                return [_not_probed(case, "the baseline side", probed)], []
            values = probed.metric_values
            launches.append((entrant, [values]))
        context = exact.ComparisonContext(baseline.differences, baseline.machines)
        rows, explained = self._rows(case, values, mine, context)
        for pairs, settled in zip(self._further, _SETTLED, strict=True):
            if all(row.outcome in settled for row in rows):
                break
            self._read_again(launches, pairs)
            unstable, scatter = self._unstable(launches)
            context = replace(context, unstable=unstable | dict(values.unstable), scatter=scatter)
            rows, explained = self._rows(case, values, mine, context)
        # XLA chose other algorithms for a GPU on the other side: neither better nor worse, but they take another time.
        explained += [
            because(Note.METRIC, row.reason, metric=row.metric)
            for row in rows
            if row.metric == catalog.ALGORITHMS and row.reason.code in (ReasonCode.OTHER, ReasonCode.NOT_EXACT)
        ]
        if result.baseline is not None:
            return rows, explained
        alone = replace(self._policy, confirm=False)  # there is no second race, so one stage has the whole alpha
        if (row := exact.memory(case, baseline.facts, facts, alone, self._sharing)) is not None:
            elsewhere = context.differences or context.machines
            if elsewhere and row.outcome is not Outcome.UNCHANGED and not self._policy.exact_across_versions:
                explained.append(because(Note.METRIC, row.reason, metric=row.metric))
            else:
                rows.append(row)
        return rows, explained

    def _rows(
        self, case: Case, baseline: MetricValues, mine: _Probed, context: exact.ComparisonContext
    ) -> tuple[list[Verdict], list[Reason]]:
        values = mine.metric_values
        rows, explained = exact.compare(case, baseline, values, context, self._policy)
        if baseline.sketch and not values.sketch:
            gone = because(Note.RESULT_GONE, why=values.absent.get("nonfinite", "the step has no output"))
            explained.insert(0, because(Note.METRIC, gone, metric="the result"))
        row, scattered = self._parity(case, baseline, mine, context.scatter)
        if row is not None and row.outcome is Outcome.REGRESSED:
            error = row.values.contender if row.values else None
            if error is not None and error <= self._policy.parity_scatter * scattered:
                (note,) = row.reason.notes
                note = because(Note.RESULT, **note.facts, scatter=scattered)
                row = row.changed(outcome=Outcome.INCONCLUSIVE, reason=because(ReasonCode.NOT_EXACT, note))
            elif context.differences and not self._policy.exact_across_versions:
                explained.append(because(Note.METRIC, row.reason, metric="the result"))
                row = None
        return [*rows, *([row] if row else [])], explained

    def _parity(
        self, case: Case, baseline: MetricValues, mine: _Probed, scattered: parity.Scatter
    ) -> tuple[Verdict | None, float]:
        """Compare a variant's error with the baseline's; compare a reference variant with the baseline's outputs.

        Returns the row, and by how much launches of one side differ in the outputs that it is about. A difference in
        a later call counts from `parity_scatter` times that between launches of one side on, and a smaller one is noted.
        """
        sketch, policy = mine.metric_values.sketch, self._policy
        differences = parity.sketched_differences(sketch, baseline.sketch) if sketch and baseline.sketch else []
        if mine.difference is not None:
            # On two sides, a variant has the same precision and the same outputs. An error of rounding hides no whole number.
            differences = [one for one in differences if one.structure or (one.exact and one.error)]
            if not differences:
                old = baseline.numbers.get(catalog.PARITY)
                row = parity.evaluate(case, old, mine.difference, "the reference variant", policy)
                return row, scattered.get(_OF_VARIANT, 0.0)
        elif not sketch:
            return None, 0.0
        elif not baseline.sketch:
            return parity.evaluate(case, None, parity.Difference(0.0), "the reference variant", policy), 0.0
        worst = parity.largest(differences, scattered, policy)
        row = parity.evaluate(case, 0.0, worst, "the baseline's result", policy)
        later = (difference for difference in differences if difference.call > 1)
        noise = max(later, key=lambda difference: difference.error, default=worst)
        if row.outcome is Outcome.UNCHANGED and noise.error > noise.floor():
            scatter = parity.scattered_by(noise, scattered)
            note = noise.note(whose="the baseline's result", before=0.0, scatter=scatter)
            row = row.noted(note)
        return row, parity.scattered_by(worst, scattered)

    def stable(self, case: Case, side: Side, metric_values: MetricValues) -> MetricValues:
        """Return the values with the metrics that differ between further launches, to be saved with them.

        Raises `SideError` if a zygote does not start.
        """
        launches = [(Entrant(case, side), [metric_values])]
        self._read_again(launches, self._further[0])
        return replace(metric_values, unstable=self._unstable(launches)[0])

    @cached_property
    def _further(self) -> tuple[Sequence[int], Sequence[int]]:
        """The pairs of zygotes of the launches that read a difference again: pairs that have raced, then others."""
        raced, launches = self._policy.looks[0], self._policy.probe_launches
        return [launch % raced for launch in range(1, launches)], range(raced, raced + launches)

    def _read_again(self, launches: Sequence[tuple[Entrant, list[MetricValues]]], pairs: Sequence[int]) -> None:
        """Add the values of a launch from each of these pairs, for each entrant.

        Raises `TfbenchError` if a launch fails, although an earlier one did not.
        """
        wanted: list[tuple[Entrant, int, list[MetricValues] | None]] = []
        for pair in pairs:
            for entrant, values in launches:
                if not self._is_reference(entrant.case):
                    wanted.append((replace(entrant, case=self._references[entrant.case.group]), pair, None))
                wanted.append((entrant, pair, values))
        entrants, of_pairs, read_so_far = zip(*wanted, strict=True)
        for values, probed in zip(read_so_far, self._probe(entrants, of_pairs), strict=True):
            if isinstance(probed, Exception):  # a change that was read once is neither confirmed nor refuted
                raise probed
            if values is not None:
                values.append(probed.metric_values)

    def _unstable(
        self, launches: Sequence[tuple[Entrant, Sequence[MetricValues]]]
    ) -> tuple[dict[str, str], parity.Scatter]:
        """Return the metrics that differ between launches of an entrant and how, and `parity.scatter`."""
        differing: dict[str, str] = {}
        scattered: dict[tuple[int, str], float] = {}
        for _, values in launches:
            differing |= exact.differing(values, self._policy)
            errors = [one.numbers[catalog.PARITY] for one in values if catalog.PARITY in one.numbers]
            of_variant = {_OF_VARIANT: max(errors) - min(errors)} if errors else {}
            for place, error in {**parity.scatter([one.sketch for one in values]), **of_variant}.items():
                scattered[place] = max(error, scattered.get(place, 0.0))
        settled = exact.apart([values for _, values in launches])
        return {name: how for name, how in differing.items() if name not in settled}, scattered


_SETTLED = {Outcome.UNCHANGED, Outcome.NEW}, set(Outcome) - {Outcome.REGRESSED}
"""Outcomes of rows that need no further launches, and none from still other zygotes. State that each zygote draws at import
may be one of two values: all three launches of one side have one, and all of the other side the other, in 3% of cases; six of
each in 0.05%."""
_OF_VARIANT = 0, ""
"""Place in `parity.Scatter` of a variant's error against its reference variant."""


def _not_probed(case: Case, timed: str, failure: Failure) -> Verdict:
    return Verdict.of(case, Outcome.ERROR, because(ReasonCode.NOT_PROBED, timed=timed, error=str(failure)), PROBES)


def _takes_own_time(sample: Sample | None) -> bool:
    """Tell whether a benchmark loops by itself and reports its time."""
    return sample is not None and any(REPORTED in run.facts for run in sample.runs)


def _facts(result: CaseResult) -> list[JSON]:
    return [run.facts for run in result.sample.runs] if result.sample else []


def _key(entrant: Entrant) -> tuple[str, str]:
    return entrant.side.name, entrant.case.name
