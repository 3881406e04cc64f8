"""What a case shows beside its time: probed, held against the other side, and against its own contracts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from numpy.typing import NDArray

from tfbench.metrics import contracts, exact, parity, sampled
from tfbench.metrics.catalog import PARITY, PEAK_HOST_MEMORY, PROBED
from tfbench.metrics.extract import read
from tfbench.model import JSON, Case, Claim, EnvironmentInfo, MetricValues, Outcome, Reason, ReasonCode, Verdict
from tfbench.policy import Policy
from tfbench.race.interfaces import Entrant, Failure
from tfbench.race.prober import Prober
from tfbench.session.baseline import CHANGED, changed_since, environment_differences, machine_differences
from tfbench.session.request import CaseResult
from tfbench.session.results import NO_BASELINE
from tfbench.sides.side import Side
from tfbench.storage.baselines import Baseline

PROBES = "probes"
"""The row that says that probing failed."""


@dataclass(frozen=True)
class ReferenceSide:
    """The other side of a comparison, raced live or saved."""

    metric_values: MetricValues | None = None
    """Saved; ``None`` if it is to be probed, or was never read."""
    side: Side | None = None
    """Where it can be probed."""
    case: Case | None = None
    """As what it can be probed there."""
    facts: Sequence[JSON] = ()
    """Of each of its launches."""
    differences: Sequence[str] = ()
    """How its environment differs, one phrase each."""
    machines: Sequence[str] = ()


def reference_side_of(
    result: CaseResult,
    saved: Baseline | None,
    rival: Side | None,
    environment: Callable[[str], EnvironmentInfo],
    there: Case | None,
) -> ReferenceSide | None:
    """What a case is compared with, ``None`` if with nothing; exact metrics are saved ones where there are any.

    Args:
        environment: What a side, by its name, is made of.
        there: The case as it is called on the other side, ``None`` if that does not have it.
    """
    facts = [run.facts for run in result.rival.runs] if result.rival else []
    here = environment("contender")
    if saved is not None:
        sample = saved.samples.get(result.case.name)
        changed = [CHANGED] if sample and changed_since(saved, result.case) else []
        return ReferenceSide(
            metric_values=saved.metric_values.get(result.case.name, MetricValues()),
            facts=facts or ([run.facts for run in sample.runs] if sample else []),
            differences=[*environment_differences(saved.environment, here), *changed],
            machines=machine_differences(saved.environment, here),
        )
    if rival is None or there is None:
        return None
    return ReferenceSide(
        side=rival, case=there, facts=facts, differences=environment_differences(environment(rival.name), here)
    )


@dataclass(frozen=True)
class _Seen:
    metric_values: MetricValues
    contracts: JSON = field(default_factory=dict)
    outputs: Sequence[NDArray[Any]] = ()
    source: str = ""
    """Digest of the benchmark's own code on this side."""


class MetricChecker:
    """Judges the metrics other than time, case by case.

    Args:
        cases: Every case of the run: results are compared with those of the reference variant among them.
    """

    def __init__(self, prober: Prober, policy: Policy, cases: Sequence[Case]) -> None:
        self._prober = prober
        self._policy = policy
        self._references = {case.group: case for case in reversed(cases) if case.reference}
        self._others = {(case.group, case.variant): case for case in cases}
        self._seen: dict[tuple[str, str], _Seen | Failure] = {}

    def look(self, cases: Sequence[Case], *sides: Side) -> None:
        """Probe these cases on these sides, and the variants that they are compared with, once each.

        Raises:
            SideError: A zygote does not start.
        """
        claimed = [self._others.get((case.group, claim.levels)) for case in cases for claim in self._readable(case)]
        references = [self._references.get(case.group) for case in cases]
        needed = dict.fromkeys([case for case in (*references, *claimed, *cases) if case is not None])
        entrants = [Entrant(case, side) for case in needed for side in sides]
        missing = [entrant for entrant in entrants if _key(entrant) not in self._seen]
        for entrant, seen in zip(missing, self._probed(missing), strict=True):
            self._seen[_key(entrant)] = seen  # before the next is read, which may be compared with it

    def _probed(self, entrants: Sequence[Entrant]) -> Iterator[_Seen | Failure]:
        for entrant, probe_output in zip(entrants, self._prober.probe(entrants), strict=True):
            if isinstance(probe_output, Exception):
                yield probe_output
                continue
            # Only results of reference variants are needed by others; the rest are let go once they were compared.
            seen = _Seen(
                read(probe_output),
                probe_output.facts.get("contracts", {}),
                probe_output.outputs,
                probe_output.facts.get("source", ""),
            )
            if not self._is_reference(entrant.case):
                seen = replace(seen, metric_values=self._with_parity(entrant, seen), outputs=())
            yield seen

    def _is_reference(self, case: Case) -> bool:
        reference = self._references.get(case.group)
        return reference is None or reference.name == case.name

    def _with_parity(self, entrant: Entrant, seen: _Seen) -> MetricValues:
        """The reading with the error of its result against the reference variant's on the same side."""
        metric_values = seen.metric_values
        reference = self._seen.get((entrant.side.name, self._references[entrant.case.group].name))
        if not isinstance(reference, _Seen):
            why = "the reference variant could not be probed"
        elif not reference.outputs or not seen.outputs:
            why = metric_values.absent.get("nonfinite") or reference.metric_values.absent.get(
                "nonfinite", "there is no result"
            )
        else:
            try:
                error = min(parity.error(seen.outputs, reference.outputs), parity.LARGEST)
                return replace(metric_values, numbers={**metric_values.numbers, PARITY: error})
            except ValueError as wrong:
                why = str(wrong)
        return replace(metric_values, absent={**metric_values.absent, PARITY: why})

    # Judging

    def checked(self, result: CaseResult, side: Side, reference_side: ReferenceSide | None) -> CaseResult:
        """The result with a row for each metric and contract, and what explains its time.

        Args:
            result: Of a case that was timed.
            side: The contender.
            reference_side: What it is compared with, if anything.

        Raises:
            SideError: A zygote does not start.
        """
        case = result.case
        assert result.verdict is not None
        others = [reference_side.side] if reference_side and reference_side.side else []
        if reference_side and reference_side.case and reference_side.case.name != case.name:
            self.look([reference_side.case], *others)
            others = []
        self.look([case], side, *others)
        mine = self._seen[side.name, case.name]
        if isinstance(mine, Exception):
            reason = Reason(ReasonCode.NOT_PROBED, f"timed, but not probed: {mine}")
            return replace(result, metrics=(*result.metrics, Verdict(case, Outcome.ERROR, reason, PROBES)))
        facts = [run.facts for run in result.sample.runs] if result.sample else []
        explained: list[str] = []
        if reference_side is None:
            rows = self._measured(case, mine.metric_values, facts)
        else:
            rows, explained = self._compared(case, side, mine, reference_side, facts)
            if any(row.metric == PEAK_HOST_MEMORY for row in result.metrics):  # raced, and confirmed
                rows = [row for row in rows if row.metric != PEAK_HOST_MEMORY]
        rows += contracts.of_case(case, mine.contracts, mine.metric_values, sampled.peaks(facts))
        rows += [self._claimed(case, side, claim, mine.metric_values) for claim in self._readable(case)]
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
        seen = self._seen.get((side.name, other.name)) if other else None
        if isinstance(seen, _Seen):
            contract_result = contracts.of_metric_values(claim, mine, seen.metric_values)
        else:
            why = f"it could not be probed: {seen}" if seen else "that variant is no part of this run"
            contract_result = contracts.of_metric_values(claim, mine, why)
        return contracts.claim_row(case, claim, contract_result)

    def _error(self, case: Case, mine: _Seen) -> float | str:
        if self._is_reference(case):
            if case.reference:
                return 0.0
            return "its reference variant is no part of this run"
        return mine.metric_values.numbers.get(PARITY, mine.metric_values.absent.get(PARITY, "there is no result"))

    def _measured(self, case: Case, metric_values: MetricValues, facts: Sequence[JSON]) -> list[Verdict]:
        """Without anything to compare with."""
        rows, _ = exact.compare(case, MetricValues(), metric_values, exact.ComparisonContext(), self._policy)
        if (row := sampled.memory(case, [], facts, self._policy)) is not None:
            rows.append(row)
        if (error := metric_values.numbers.get(PARITY)) is not None:
            rows.append(parity.evaluate(case, None, error, "the reference variant", self._policy))
        return [replace(row, reason=NO_BASELINE) for row in rows]

    def _compared(
        self, case: Case, side: Side, mine: _Seen, reference_side: ReferenceSide, facts: Sequence[JSON]
    ) -> tuple[list[Verdict], list[str]]:
        theirs, differences = reference_side.metric_values, list(reference_side.differences)
        if theirs is None and reference_side.side is not None:
            seen = self._seen[reference_side.side.name, (reference_side.case or case).name]
            if isinstance(seen, Exception):
                reason = Reason(ReasonCode.NOT_PROBED, f"the baseline's side was timed, but not probed: {seen}")
                return [Verdict(case, Outcome.ERROR, reason, PROBES)], []
            theirs = seen.metric_values
            if seen.source and seen.source != mine.source:
                differences.append(CHANGED)
        if theirs is None:
            theirs = MetricValues()
        context = exact.ComparisonContext(differences, reference_side.machines)
        rows, explained = self._rows(case, theirs, mine.metric_values, context)
        if any(row.outcome not in (Outcome.UNCHANGED, Outcome.NEW) for row in rows):
            unstable = self._unstable(case, side, mine.metric_values)
            if reference_side.side is not None and reference_side.metric_values is None:
                unstable |= self._unstable(reference_side.case or case, reference_side.side, theirs)
            if unstable:
                rows, explained = self._rows(case, theirs, mine.metric_values, replace(context, unstable=unstable))
        if (row := sampled.memory(case, reference_side.facts, facts, self._policy)) is not None:
            rows.append(row)
        return rows, explained

    def _rows(
        self, case: Case, theirs: MetricValues, mine: MetricValues, context: exact.ComparisonContext
    ) -> tuple[list[Verdict], list[str]]:
        rows, explained = exact.compare(case, theirs, mine, context, self._policy)
        row = self._parity(case, theirs, mine)
        if row is not None and row.outcome is Outcome.REGRESSED:
            if how := context.unstable.get(PARITY):
                text = f"{row.reason.message}, but it is not exact here: {how}"
                row = replace(row, outcome=Outcome.INCONCLUSIVE, reason=Reason(ReasonCode.NOT_EXACT, text))
            elif context.differences and not self._policy.exact_across_versions:
                explained.append(f"the result {row.reason.message}")
                row = None
        return [*rows, *([row] if row else [])], explained

    def _parity(self, case: Case, theirs: MetricValues, mine: MetricValues) -> Verdict | None:
        """Variants are compared with their reference; what has none, with the baseline's own result."""
        if PARITY in mine.numbers:
            return parity.evaluate(
                case, theirs.numbers.get(PARITY), mine.numbers[PARITY], "the reference variant", self._policy
            )
        if not mine.sketch:
            return None
        if not theirs.sketch:
            return parity.evaluate(case, None, 0.0, "the reference variant", self._policy)
        error = min(parity.sketched_error(mine.sketch, theirs.sketch), parity.LARGEST)
        return parity.evaluate(case, 0.0, error, "the baseline's result", self._policy)

    def _unstable(self, case: Case, side: Side, metric_values: MetricValues) -> dict[str, str]:
        """Metrics that differ between further launches of a side."""
        again = [Entrant(case, side)] * (self._policy.probe_launches - 1)
        repeated = [seen.metric_values for seen in self._probed(again) if isinstance(seen, _Seen)]
        return exact.differing([metric_values, *repeated], self._policy)


def _key(entrant: Entrant) -> tuple[str, str]:
    return entrant.side.name, entrant.case.name
