"""Judge the metrics other than time: against the other side, and against the contracts of the case."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tfbench.metrics import contracts, exact, parity, sampled
from tfbench.metrics.catalog import PARITY, PEAK_HOST_MEMORY, PROBED, read
from tfbench.metrics.probe_output import Output
from tfbench.model import JSON, LEAKS, Case, Claim, MetricValues, Outcome, Reason, ReasonCode, Verdict
from tfbench.policy import Policy
from tfbench.race.interfaces import Entrant, Failure
from tfbench.race.prober import Prober
from tfbench.session.baseline import CHANGED
from tfbench.session.changed_only import ExecutedCode
from tfbench.session.request import CaseResult
from tfbench.session.results import NO_BASELINE
from tfbench.sides.side import Side

PROBES = "probes"
"""Name of the row that reports a failed probe."""


@dataclass(frozen=True)
class ReferenceSide:
    """The other side of a comparison: saved, or live and to be probed."""

    metric_values: MetricValues | None = None
    """Saved values; ``None`` if the side is to be probed."""
    side: Side | None = None
    """The side to probe."""
    case: Case | None = None
    """The case as it is called on that side."""
    facts: Sequence[JSON] = ()
    """Facts of each of its timed launches."""
    differences: Sequence[str] = ()
    """Differences of its environment, one phrase each."""
    machines: Sequence[str] = ()
    """Differences of its machine, one phrase each."""

    def entrant(self, case: Case) -> Entrant | None:
        """Return the entrant to probe on this side, or ``None`` if its values come from a baseline.

        Args:
            case: The case as it is called on the contender.
        """
        return Entrant(self.case or case, self.side) if self.side else None


@dataclass(frozen=True)
class _Probed:
    metric_values: MetricValues
    contracts: JSON = field(default_factory=dict)
    outputs: Sequence[Output] = ()
    executed: ExecutedCode = field(default_factory=ExecutedCode)
    difference: parity.Difference | None = None
    """Of the outputs from those of the reference variant, if there is one."""


class MetricChecker:
    """Probe cases, each once per side, and judge what the probes read.

    Args:
        cases: All cases of the run. Outputs of a variant are compared with those of its reference among them.
    """

    def __init__(self, prober: Prober, policy: Policy, cases: Sequence[Case]) -> None:
        self._prober = prober
        self._policy = policy
        self._cases = len(cases)
        self._references = {case.group: case for case in reversed(cases) if case.reference}
        self._others = {(case.group, case.variant): case for case in cases}
        self._probed: dict[tuple[str, str], _Probed | Failure] = {}
        """Names of a side and a case -> what the probe read, or why it failed."""

    def look(self, entrants: Iterable[Entrant], progress: Callable[[str], None] = lambda done: None) -> None:
        """Probe these entrants at once, together with the variants that they are compared with.

        A case that was probed on a side before is not probed again.

        Args:
            progress: Called after each entrant with the number probed so far, such as ``3 of 8``.

        Raises:
            SideError: A zygote does not start.
        """
        needed = {_key(one): one for entrant in entrants for one in self._with_compared(entrant)}
        missing = [one for key, one in needed.items() if key not in self._probed]
        for done, (entrant, probed) in enumerate(zip(missing, self._probe(missing), strict=True), start=1):
            self._probed[_key(entrant)] = probed  # stored now, since the next may be compared with it
            progress(f"{done} of {len(missing)}")

    def _with_compared(self, entrant: Entrant) -> list[Entrant]:
        """Return the entrants to probe for this one: the variants it is compared with, reference first, then itself."""
        case = entrant.case
        claimed = [self._others.get((case.group, claim.levels)) for claim in self._readable(case)]
        cases = (self._references.get(case.group), *claimed, case)
        return [Entrant(one, entrant.side) for one in cases if one is not None]

    def executed(self, *entrants: Entrant) -> list[ExecutedCode | None]:
        """Return the code that each entrant executes, or ``None`` if its probing launch fails.

        Raises:
            SideError: A zygote does not start.
        """
        self.look(entrants)
        found = [self._probed[_key(entrant)] for entrant in entrants]
        return [one.executed if isinstance(one, _Probed) else None for one in found]

    def _probe(self, entrants: Sequence[Entrant]) -> Iterator[_Probed | Failure]:
        for entrant, probe_output in zip(entrants, self._prober.probe(entrants), strict=True):
            if isinstance(probe_output, Exception):
                yield probe_output
                continue
            probed = _Probed(
                read(probe_output),
                probe_output.facts.get("contracts", {}),
                probe_output.outputs,
                ExecutedCode.of_probe(probe_output),
            )
            if not self._is_reference(entrant.case):
                # Other cases need the outputs of reference variants only. The others are dropped to free their memory.
                probed = replace(self._with_parity(entrant, probed), outputs=())
            yield probed

    def _is_reference(self, case: Case) -> bool:
        reference = self._references.get(case.group)
        return reference is None or reference.name == case.name

    def _with_parity(self, entrant: Entrant, probed: _Probed) -> _Probed:
        """Add the error of the outputs relative to the reference variant on the same side."""
        metric_values = probed.metric_values
        reference = self._probed.get((entrant.side.name, self._references[entrant.case.group].name))
        if not isinstance(reference, _Probed):
            why = "the reference variant could not be probed"
        elif not reference.outputs or not probed.outputs:
            absent = {**reference.metric_values.absent, **metric_values.absent}
            why = absent.get("nonfinite", "the step has no output")
        else:
            difference = parity.compare(probed.outputs, reference.outputs)
            numbers = {**metric_values.numbers, PARITY: difference.error}
            return replace(probed, metric_values=replace(metric_values, numbers=numbers), difference=difference)
        absent = {**metric_values.absent, PARITY: why}
        return replace(probed, metric_values=replace(metric_values, absent=absent))

    # Judging

    def checked(
        self, result: CaseResult, side: Side, reference_side: ReferenceSide | None, group: Sequence[Case] = ()
    ) -> CaseResult:
        """Add a row for each metric and contract, and append changes that explain the time to its reason.

        Args:
            result: Result of a timed case.
            side: The contender.
            reference_side: What the case is compared with; ``None`` without a comparison.
            group: Further cases to probe at the same time.

        Raises:
            SideError: A zygote does not start.
        """
        case = result.case
        assert result.verdict is not None
        theirs = reference_side.entrant(case) if reference_side else None
        self.look([*(Entrant(one, side) for one in (*group, case)), *([theirs] if theirs else [])])
        mine = self._probed[side.name, case.name]
        if isinstance(mine, Exception):
            row = _not_probed(case, f"the case was timed, but its probe failed: {mine}")
            return replace(result, metrics=(*result.metrics, row))
        facts = [run.facts for run in result.sample.runs] if result.sample else []
        explained: list[str] = []
        if reference_side is None:
            rows = self._measured(case, mine, facts)
        else:
            rows, explained = self._compared(case, side, mine, reference_side, facts)
            if any(row.metric == PEAK_HOST_MEMORY for row in result.metrics):  # the race has judged and confirmed it
                rows = [row for row in rows if row.metric != PEAK_HOST_MEMORY]
        rows += contracts.of_case(case, mine.contracts, mine.metric_values, sampled.peaks(facts))
        rows += [self._claimed(case, side, claim, mine.metric_values) for claim in self._readable(case)]
        for claim in case.claims_on(LEAKS):
            rows.append(contracts.claim_row(case, claim, contracts.leak_free(mine.metric_values, self._policy)))
        if PARITY in mine.contracts:
            rows.append(contracts.row(case, PARITY, contracts.parity(mine.contracts[PARITY], self._error(case, mine))))
        verdict = result.verdict
        if explained:
            text = f"{verdict.reason.message}; other metrics: {'; '.join(explained)}"
            verdict = replace(verdict, reason=Reason(verdict.reason.code, text))
        return replace(result, verdict=verdict, metrics=(*result.metrics, *rows), metric_values=mine.metric_values)

    @staticmethod
    def _readable(case: Case) -> list[Claim]:
        return case.claims_on(*(metric.name for metric in PROBED))

    def _claimed(self, case: Case, side: Side, claim: Claim, mine: MetricValues) -> Verdict:
        other = self._others.get((case.group, claim.levels))
        probed = self._probed.get((side.name, other.name)) if other else None
        theirs: MetricValues | str = "that variant is not part of this run"
        if isinstance(probed, _Probed):
            theirs = probed.metric_values
        elif probed is not None:
            theirs = f"its probe failed: {probed}"
        return contracts.claim_row(case, claim, contracts.of_metric_values(claim, mine, theirs))

    def _error(self, case: Case, mine: _Probed) -> parity.Difference | str:
        """Return how the outputs differ from the reference variant's, or why that is unknown."""
        if self._is_reference(case):
            return parity.Difference(0.0) if case.reference else "its reference variant is not part of this run"
        return mine.difference or mine.metric_values.absent.get(PARITY, "the step has no output")

    def _measured(self, case: Case, mine: _Probed, facts: Sequence[JSON]) -> list[Verdict]:
        """Return rows without a comparison."""
        metric_values = mine.metric_values
        rows, _ = exact.compare(case, MetricValues(), metric_values, exact.ComparisonContext(), self._policy)
        if (row := sampled.memory(case, [], facts, self._policy, self._cases)) is not None:
            rows.append(row)
        if mine.difference is not None:
            rows.append(parity.evaluate(case, None, mine.difference, "the reference variant", self._policy))
        return [replace(row, reason=NO_BASELINE) for row in rows]

    def _compared(
        self, case: Case, side: Side, mine: _Probed, reference_side: ReferenceSide, facts: Sequence[JSON]
    ) -> tuple[list[Verdict], list[str]]:
        """Return a row per metric, and the changes that explain a changed time.

        A change counts only if further launches of each probed side agree with the first.
        """
        theirs, differences = reference_side.metric_values, list(reference_side.differences)
        entrant = reference_side.entrant(case)
        if theirs is None and entrant is not None:
            probed = self._probed[_key(entrant)]
            if isinstance(probed, Exception):
                return [_not_probed(case, f"the baseline side was timed, but its probe failed: {probed}")], []
            theirs = probed.metric_values
            if probed.executed.source and probed.executed.source != mine.executed.source:
                differences.append(CHANGED)
        if theirs is None:
            theirs = MetricValues()
        context = exact.ComparisonContext(differences, reference_side.machines)
        rows, explained = self._rows(case, theirs, mine, context)
        if any(row.outcome not in (Outcome.UNCHANGED, Outcome.NEW) for row in rows):
            known = [(Entrant(case, side), mine.metric_values)]
            if entrant is not None and reference_side.metric_values is None:
                known.append((entrant, theirs))
            unstable, scatter = self._unstable(known)
            context = replace(context, unstable=unstable | dict(theirs.unstable), scatter=scatter)
            rows, explained = self._rows(case, theirs, mine, context)
        if (row := sampled.memory(case, reference_side.facts, facts, self._policy, self._cases)) is not None:
            elsewhere = context.differences or context.machines
            if elsewhere and row.outcome is not Outcome.UNCHANGED and not self._policy.exact_across_versions:
                explained.append(f"{row.metric} {row.reason.message}")
            else:
                rows.append(row)
        return rows, explained

    def _rows(
        self, case: Case, theirs: MetricValues, mine: _Probed, context: exact.ComparisonContext
    ) -> tuple[list[Verdict], list[str]]:
        rows, explained = exact.compare(case, theirs, mine.metric_values, context, self._policy)
        row, scattered = self._parity(case, theirs, mine, context.scatter)
        if row is not None and row.outcome is Outcome.REGRESSED:
            error = row.values[1] if row.values else None
            if error is not None and error <= self._policy.parity_growth * scattered:
                how = f"launches of the same side differ by {parity.describe(scattered)}"
                text = f"{row.reason.message}, but the metric is not exact here: {how}"
                row = replace(row, outcome=Outcome.INCONCLUSIVE, reason=Reason(ReasonCode.NOT_EXACT, text))
            elif context.differences and not self._policy.exact_across_versions:
                explained.append(f"the result {row.reason.message}")
                row = None
        return [*rows, *([row] if row else [])], explained

    def _parity(
        self, case: Case, theirs: MetricValues, mine: _Probed, scattered: Mapping[str, float]
    ) -> tuple[Verdict | None, float]:
        """Compare a variant's error with the baseline's; compare a reference variant with the baseline's outputs.

        Returns the row, and by how much launches of one side differ in the outputs that it is about.
        """
        sketch, policy = mine.metric_values.sketch, self._policy
        differences = parity.sketched_differences(sketch, theirs.sketch) if sketch and theirs.sketch else []
        if mine.difference is not None:
            # On two sides, a variant has the same precision and the same outputs.
            if not any(one.structure for one in differences):
                old = theirs.numbers.get(PARITY)
                row = parity.evaluate(case, old, mine.difference, "the reference variant", policy)
                return row, max(scattered.values(), default=0.0)
        elif not sketch:
            return None, 0.0
        elif not theirs.sketch:
            return parity.evaluate(case, None, parity.Difference(0.0), "the reference variant", policy), 0.0
        worst = parity.largest(differences, scattered, policy)
        row = parity.evaluate(case, 0.0, worst, "the baseline's result", policy)
        return row, parity.scattered_by(worst, scattered)

    def stable(self, case: Case, side: Side, metric_values: MetricValues) -> MetricValues:
        """Return the values with the metrics that differ between further launches, to be saved with them.

        Raises:
            SideError: A zygote does not start.
        """
        return replace(metric_values, unstable=self._unstable([(Entrant(case, side), metric_values)])[0])

    def _unstable(self, known: Sequence[tuple[Entrant, MetricValues]]) -> tuple[dict[str, str], dict[str, float]]:
        """Probe entrants again; returns the metrics that differ between launches and how, and `parity.scatter`.

        Raises:
            TfbenchError: A launch fails, although an earlier one did not.
        """
        repeated = {_key(entrant): [values] for entrant, values in known}
        again = [entrant for entrant, _ in known for _ in range(self._policy.probe_launches - 1)]
        for entrant, probed in zip(again, self._probe(again), strict=True):
            if isinstance(probed, Exception):  # a change that was read once is neither confirmed nor refuted
                raise probed
            repeated[_key(entrant)].append(probed.metric_values)
        differing: dict[str, str] = {}
        scattered: dict[str, float] = {}
        for launches in repeated.values():
            differing |= exact.differing(launches, self._policy)
            for output, error in parity.scatter([values.sketch for values in launches]).items():
                scattered[output] = max(error, scattered.get(output, 0.0))
        return differing, scattered


def _not_probed(case: Case, text: str) -> Verdict:
    return Verdict(case, Outcome.ERROR, Reason(ReasonCode.NOT_PROBED, text), PROBES)


def _key(entrant: Entrant) -> tuple[str, str]:
    return entrant.side.name, entrant.case.name
