"""Findings of the doctor's race: the detectable slowdown, and workloads that break or differ from themselves."""

from __future__ import annotations

from tfbench.doctor.checks.grading import Limits
from tfbench.doctor.detection import LEAST, SLOWDOWNS, DetectionLimit
from tfbench.doctor.model import Finding, State
from tfbench.doctor.noise import NoiseTest, SelfRace
from tfbench.errors import TfbenchError
from tfbench.model import Outcome
from tfbench.policy import Policy
from tfbench.report.units import duration, times
from tfbench.stats.verdict import change, classify

NAME = "race"
_IMPORT = "python -c 'import tensorflow' in this environment shows the cause"


def of_test(test: NoiseTest, limits: Limits) -> list[Finding]:
    """Return the findings of all races, the headline of the middle workload first after broken ones."""
    found = [
        Finding(NAME, State.BAD, f"{race.name} breaks: {race.failure}", _IMPORT) for race in test.races if race.failure
    ]
    middle = test.middle
    if middle is None:
        launches = min((len(race.launches) for race in test.races), default=0)
        text = f"{launches} launches of a workload are too few for a result; {LEAST} are needed"
        return [*found, Finding(NAME, State.UNKNOWN, text, "give the race more time with --seconds")]
    found.append(_headline(middle, test.detection_limits[middle.name], test.policy, limits))
    for race in test.races:
        limit = test.detection_limits.get(race.name)
        if limit is None:
            continue
        if race is not middle and _is_blind(limit, limits):
            text = f"{race.name}: {_detectable(race, limit, test.policy)}"
            found.append(Finding(NAME, State.WARN, text, "give such cases --policy strict, or more time"))
        outcome = classify(limit.itself.low, limit.itself.high, test.policy.step_time)
        if outcome in (Outcome.REGRESSED, Outcome.IMPROVED):
            text = f"{race.name} against itself was {change(limit.itself.center)}, ratio {times(limit.itself)}"
            fix = "run again, as this can be chance; if it stays, fix the findings above and run `tfbench calibrate`"
            found.append(Finding(NAME, State.WARN, text, fix))
    return found


def of_error(error: TfbenchError) -> Finding:
    """Return the finding of a race that could not run."""
    return Finding(NAME, State.BAD, f"the race could not run: {str(error).strip().splitlines()[-1]}", _IMPORT)


def _headline(middle: SelfRace, limit: DetectionLimit, policy: Policy, limits: Limits) -> Finding:
    detectable = _detectable(middle, limit, policy)
    if not _is_blind(limit, limits):
        return Finding(NAME, State.OK, detectable)
    text = f"the gate would often miss a slowdown of {limits.slowdown_bad:.0%}: {detectable}"
    return Finding(NAME, State.BAD, text, "fix the findings marked bad or warn, or measure on another machine")


def _is_blind(limit: DetectionLimit, limits: Limits) -> bool:
    return limit.smallest is None or limit.smallest > limits.slowdown_bad


def _detectable(race: SelfRace, limit: DetectionLimit, policy: Policy) -> str:
    if limit.smallest is None:
        return f"policy {policy.name} does not detect even a slowdown of {SLOWDOWNS[-1]:.0%} here"
    cost = duration(limit.launches * race.launch_seconds)
    return (
        f"a slowdown of {limit.smallest:.1%} is detectable here in about {limit.launches:.0f} launches, {cost} per case"
    )
