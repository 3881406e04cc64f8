"""Why a verdict has its outcome: a code for programs and a sentence for people."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from tfbench.model.case import JSON


class ReasonCode(str, enum.Enum):
    """The reason codes of reports. A member equals its string, so code read from a file compares with it."""

    # The live race

    SLOWER = "slower"
    """The whole interval of the ratio lies above the minimum effect."""
    FASTER = "faster"
    """The whole interval of the ratio lies below the inverse of the minimum effect."""
    SLOW_CALLS = "slow-calls"
    """The median is not slower, but calls of the contender are slow, and raise the geometric mean by more than `tail_effect`."""
    FEWER_SLOW_CALLS = "fewer-slow-calls"
    """The median is not faster, but the contender has fewer slow calls, which lowers the geometric mean as much."""
    TAIL_NOT_DECIDED = "tail-not-decided"
    """The median is proved to be unchanged or faster, and slow calls could still cost more than `tail_tolerance`."""
    WITHIN_TOLERANCE = "within-tolerance"
    """The change lies within the policy's tolerance."""
    NOT_DECIDED = "not-decided"
    """The policy's budget of launches is spent and the evidence proves no outcome."""
    RACING = "racing"
    """The race needs more launches. No report has this code."""
    NOT_CONFIRMED = "not-confirmed"
    """The first race, or the first job, found a regression and the second did not."""
    INTERRUPTED = "interrupted"
    """The run was interrupted before the regression was confirmed."""
    FEW_CASES = "few-cases"
    """Too few cases were raced against the baseline for a mean."""
    DISTURBED = "disturbed"
    """The race was aborted because other processes disturbed too many launches."""
    WITHIN_ABS_TOLERANCE = "within-slack"
    """The change of a first call is below the policy's absolute tolerance in seconds."""

    # The saved times of a baseline

    SAVED_TIMES = "saved-times"
    """Decided from saved times, without a live race."""
    FEW_SESSIONS = "few-sessions"
    """Too few saved sessions to predict how much the times of unchanged code move."""
    OTHER_MACHINE = "other-machine"
    """The baseline was measured on another machine or in another environment."""
    OTHER_CLOCK = "other-clock"
    """The GPU ran at another clock rate than in the baseline."""
    OTHER_METHOD = "other-way"
    """The baseline was measured under another policy, or in races between other entrants."""
    BENCHMARK_CHANGED = "benchmark-changed"
    """The benchmark's own code has changed since the baseline was saved."""

    # Cases and sides without a comparison

    NO_BASELINE = "no-baseline"
    """The run had no baseline, so the case raced the other variants only."""
    NOT_IN_BASELINE = "not-in-baseline"
    """The baseline lacks this case or metric."""
    NOT_COLLECTED = "not-collected"
    """The baseline has the case and the suite no longer collects it."""
    DESELECTED_HERE = "deselected-here"
    """The baseline would run the case under the same options, and this run's own marks, hooks or settings deselect it."""
    SKIPPED_ON_ONE_SIDE = "skipped-on-one-side"
    """One of the two sides cannot run the case, or skips it."""
    NO_SOURCE = "no-source"
    """The source tree of the baseline cannot be recreated."""
    NO_ENVIRONMENT = "no-environment"
    """The packages of the baseline cannot be installed again."""
    SAME_CODE = "same-code"
    """Not raced, because both sides run the same code, graphs and packages (``--changed-only``)."""
    OTHER_NATIVE_CODE = "other-native-code"
    """A side has not run the native code of its own source tree, or only one of the sides has run any."""
    OTHER_ENVIRONMENT = "other-environment"
    """The recreated side differs from the environment that the baseline was saved in."""

    # Failures

    BROKEN = "broken"
    """The benchmark raised an error."""
    DIED = "died"
    """The worker process ended unexpectedly."""
    HUNG = "hung"
    """The worker process did not answer in time."""
    SIDE = "side"
    """A side could not be created or started."""
    NOT_MEASURED = "not-measured"
    """The run ended before this case was measured."""
    NOT_COLLECTED_HERE = "not-collected-here"
    """pytest could not collect the file, so its cases are unknown."""
    INTERNAL = "internal"
    """tfbench itself failed while it measured the case."""

    # Metrics other than time

    SAME = "same"
    """The value is the same on both sides."""
    MORE = "more"
    """The value of the contender is larger."""
    FEWER = "fewer"
    """The value of the contender is smaller."""
    OTHER = "other"
    """The values differ and the metric has no better direction."""
    NOT_EXACT = "not-exact"
    """The value changes between launches of the same code on this machine."""
    NOT_READ = "not-read"
    """The baseline has a value and this run could not read one."""
    NOT_PROBED = "not-probed"
    """The probing launch failed although the timed launches succeeded."""

    # Contracts

    CONTRACT_HELD = "contract-held"
    """The contract holds."""
    CONTRACT_BROKEN = "contract-broken"
    """The contract does not hold."""
    CONTRACT_OPEN = "contract-open"
    """The evidence does not show whether the contract holds."""
    CONTRACT_UNREADABLE = "contract-unreadable"
    """The contract cannot be checked because its evidence is missing."""

    # Two result files (`tfbench compare`)

    ONE_FILE = "one-file"
    """Only one of the two files has the case."""
    NO_INTERVAL = "no-interval"
    """A file has too little data for a confidence interval."""
    WITHIN_SCATTER = "within-scatter"
    """The difference is within the scatter inside the two runs."""
    STANDS_OUT = "stands-out"
    """The difference exceeds the scatter inside the two runs."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Reason:
    """Why: a code for programs and a sentence for people."""

    code: ReasonCode | str
    """A plain string only in a report from a file, which another version of tfbench may have written."""
    message: str

    def as_json(self) -> JSON:
        """Return the ``reason`` object of the report."""
        return {"code": str(self.code), "message": self.message}
