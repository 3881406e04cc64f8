"""Reasons of verdicts: a code, its facts and notes, and the one place that turns them into words."""

from __future__ import annotations

import math
import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from tfbench.model import words
from tfbench.model.case import OUTSIDE_PYTHON, Word
from tfbench.model.formats import Free, Name, Text
from tfbench.model.measurement import Ratio
from tfbench.untrusted import plural, some

# Words: a template of the facts, or a function of them


def _next_step(policy: str, needed: float = 0.0, seconds: float = 0.0, strict: Sequence[float] = ()) -> str:
    """Say what would decide a case: ``strict`` has its launches and seconds by that policy, if that is in its reach."""
    if strict:
        return f"--policy strict would decide it after about {strict[0]:.0f} launches, {words.span(strict[1])}"
    if needed >= words.LARGEST:
        return "more launches do not help: use other processors (--cpus) or a quieter machine (`tfbench doctor`)"
    if needed:
        cost = f"a decision would take about {needed:.0f} launches, {words.span(seconds)}"
        return f"{cost}: use a quieter machine (`tfbench doctor`), or give the case a larger tolerance"
    return f"use {'' if policy in ('strict', 'finest') else '--policy strict or '}a quieter machine (`tfbench doctor`)"


def _tail_undecided(ratio: Ratio, launches: int, median: float | None, policy: str = "", **cost: Any) -> str:
    text = f"the median is {_typical(median)}, but slow calls could cost {words.hidden(ratio):.1%}"
    return f"not decided: {text} ({words.evidence(ratio, launches)}); {_next_step(policy, **cost)}"


def _undecided(ratio: Ratio, launches: int, minimum_effect: float, policy: str, **cost: Any) -> str:
    fix = _next_step(policy, **cost)
    if words.hidden(ratio) > minimum_effect:
        slowdown = f"{words.hidden(ratio):.1%}" if words.hidden(ratio) < 1 else f"a factor of {ratio.high:.1f}"
        return f"not decided: a slowdown of {slowdown} cannot be ruled out ({words.evidence(ratio, launches)}); {fix}"
    return f"not decided, but not slower: at most {words.change(ratio.high)} ({words.evidence(ratio, launches)}); {fix}"


def _covered(first: int, last: int, seconds: float, probed: int) -> str:
    later = f"; a probe looked for slower calls up to {probed:,}" if probed > last else ""
    return f"times are those of calls {first:,} to {last:,} of a process, in the first {words.duration(seconds)}{later}"


def _slow_calls(ratio: Ratio, launches: int, **median: float | None) -> str:
    which = "slow calls" if ratio.center >= 1 else "fewer slow calls"
    text = f"{which}: the geometric mean of the calls is {words.changed(ratio, launches)}"
    if (median.get("median") or 0.0) >= ratio.center >= 1:
        return f"the median is {_typical(median['median'])}; {text}"
    return f"{text}, the median {_typical(median['median'])}" if median else text


def _typical(median: float | None) -> str:
    return "unchanged" if median is None else words.change(median)


def _first_call_parts(**parts: Sequence[float]) -> str:
    traced = any(parts["trace"])
    # Without a trace, nothing shows that the rest is compilation.
    rest = "compilation and other work done once" if traced else "work done once"
    shown = {**({"trace": parts["trace"]} if traced else {}), rest: parts["compile"], "execute": parts["execute"]}
    return ", ".join(f"{part} {1e3 * was:.0f} ms before, {1e3 * now:.0f} ms now" for part, (was, now) in shown.items())


def _mean(cases: int, ratio: Ratio, again: int) -> str:
    passes = f", raced again {plural(again, 'time')}," if again else ""
    interval = f"interval {ratio.low - 1:+.2%} to {ratio.high - 1:+.2%} at {ratio.confidence:.0%} confidence"
    return f"the mean of {cases} cases{passes} is {ratio.center - 1:+.2%} ({interval})"


def _failed(error: str, side: str = "") -> str:
    return f"on the {side} side: {error}" if side else error


def _same(before: float, now: float, unit: str) -> str:
    was, became = words.amount(before, unit), words.amount(now, unit)
    return f"{became}, as before" if was == became else f"{was} before, {became} now: within the tolerance"


def _no_value(now: float, unit: str, why: str = "") -> str:
    return f"{words.amount(now, unit)}; no value in the baseline{f': {why}' if why else ''}"


def _not_read(before: float, unit: str, why: str = "") -> str:
    return f"{words.amount(before, unit)} in the baseline, unavailable now{f': {why}' if why else ''}"


def _values_changed(
    before: float, now: float, unit: str, ratio: Ratio | None = None, launches: int = 0, **counts: Mapping[str, int]
) -> str:
    """Say how a metric changed: with the entries lost and gained if it counts, or with the evidence if it is sampled."""
    sampled = words.evidence(ratio, launches) if ratio else plural(launches, "launch") if launches else ""
    counted = f": {words.exchanged(**counts)}" if counts else ""
    values = f"{words.amount(before, unit)} before, {words.amount(now, unit)} now"
    return values + counted + (f" ({sampled})" if sampled else "")


def _apart(error: float, output: str, structure: str, unit: str = "", exact: bool = False, call: int = 1) -> str:
    later = f" in call {call}" if call > 1 else ""
    if structure:
        return f"{later}: {structure}"
    place = f"{f' in the output {output}' if output else ''}{later}"
    return f": other values{place}" if exact and error else f" by {words.difference(error)}{unit}{place}"


def _outputs(**apart: Any) -> str:
    if not (apart["error"] or apart["structure"]):
        return "the outputs are the same"
    return f"the outputs differ{_apart(**apart, unit=' of their largest number')}"


def _result(whose: str, structure: str, **facts: Any) -> str:
    """Say how the result of a step differs from ``whose``."""
    before, allowed, scatter = (facts.pop(name, None) for name in ("before", "allowed", "scatter"))
    rounding = ": rounding at most" if facts.pop("rounding", False) else ""
    text = f"differs from {whose}{_apart(structure=structure, **facts)}{rounding}"
    if before is not None and not structure and not facts.get("exact"):
        text += f", by {words.difference(before)} before"
    text += f", {allowed:.2g} allowed" if allowed is not None else ""
    if scatter is None:
        return text
    return f"{text}, but the metric is not exact here: launches of the same side differ by {words.difference(scatter)}"


def _ops(counted: Mapping[str, int]) -> str:
    present = {op: count for op, count in counted.items() if count}
    return f"as expected: {words.named(present) or 'none of ' + ', '.join(counted)}"


def _other_ops(expected: Mapping[str, int], counted: Mapping[str, int], graph: Mapping[str, int]) -> str:
    wrong = sorted(op for op in expected if expected[op] != counted[op])
    return f"{', '.join(f'{expected[op]} {op} expected, {counted[op]} found' for op in wrong)}; the graph has {words.named(graph)}"


def _traces(traces: float, limit: int, causes: Mapping[str, int] | None = None) -> str:
    text = f"traced {plural(round(traces), 'time')}, {limit} allowed"
    return text if causes is None else f"{text}: {words.named(causes)}"


def _leaks(growth: Mapping[str, tuple[float, str]], sites: Mapping[str, float], calls: int = 0) -> str:
    values = ", ".join(f"{metric} {words.amount(*value)}" for metric, value in growth.items())
    lines = [
        f"{words.amount(size, words.BYTES)} per call {'' if site == OUTSIDE_PYTHON else 'at '}{site}"
        for site, size in sites.items()
    ]
    measured = f" (measured over {plural(calls, 'call')})" if calls else ""
    return f"the process grows with every call{measured}: {'; '.join(filter(None, [values, ', '.join(lines)]))}"


def _claimed(claim: float | None) -> str:
    return "the same time is claimed" if claim is None else f"{claim:g}x is claimed"


def _limit(other: str, claim: float, ratio: Ratio, launches: int) -> str:
    low, center, high = (words.duration(claim * factor) for factor in (ratio.low, ratio.center, ratio.high))
    return f"{center} ({low} to {high}, {plural(launches, 'launch')}), {other} {words.duration(claim)} is stated"


def _size(size: float, other: str, theirs: float, claim: float) -> str:
    sizes = f"{words.amount(size, words.BYTES)}, {words.amount(theirs, words.BYTES)} of {other}"
    return f"{sizes}: {theirs / size:.2f}x as small, {claim:g}x is claimed"


_DESELECTING = "was it marked, or does a conftest.py or an option in the configuration leave it out?"

# Why a verdict has its outcome: a code for programs, with facts and notes


class _Template(string.Formatter):
    """Fills the facts into a template: in the form that follows a colon, or that of Python's format language.

    Some fields join several facts: ``changed``, ``evidence`` and ``values``.
    """

    def get_value(self, key: int | str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if key == "values":
            return "{} before, {} now".format(
                *(words.amount(kwargs[name], kwargs["unit"]) for name in ("before", "now"))
            )
        made = {"changed": words.changed, "evidence": words.evidence}.get(str(key))
        return made(kwargs["ratio"], kwargs["launches"]) if made else kwargs[str(key)]

    def format_field(self, value: Any, format_spec: str) -> str:
        form, _, rest = format_spec.partition(" ")
        if form in _NOUNS:
            return plural(value, form) + (f" {'was' if value == 1 else 'were'}" if rest else "")
        if form not in _FORMS:
            return str(super().format_field(value, format_spec))
        return _FORMS[form](value) or rest.removeprefix("or ")


_NOUNS = ("launch", "case")
"""Forms of counts, with their verb if `` were`` follows."""
_FORMS: Mapping[str, Callable[[Any], str]] = {
    "some": lambda names: some(names, 3), "all": "; ".join, "or": str,
    "duration": words.duration, "ms": lambda seconds: f"{1e3 * seconds:.0f} ms", "+ms": lambda seconds: f"{1e3 * seconds:+.1f} ms",
    "bytes": lambda size: words.amount(size, words.BYTES), "points": lambda share: f"{100 * share:g} percentage points",
    "change": words.change, "effect": lambda effect: words.change(math.exp(effect)), "typical": _typical,
    "hidden": lambda ratio: f"{words.hidden(ratio):.1%}", "claimed": _claimed,
}  # fmt: skip
"""Forms of a fact in words; `` or `` and a text may follow, for a fact without any."""


class _Code(Word):
    """A code with its words: a template of its facts, or a function of them, ``""`` if its notes say all.

    A template that ends with a space is completed by a note.
    """

    words: str | Callable[..., str]

    def __new__(cls, code: str, words: str | Callable[..., str] = "") -> _Code:
        member = str.__new__(cls, code)
        member._value_, member.words = code, words
        return member


# fmt: off
class ReasonCode(_Code):
    """The reason codes of reports, with their words. A member equals its string, so a code from a file compares with it.

    A docstring follows where the words do not say enough.
    """

    # The live race

    SLOWER = "slower", "{changed}"
    """The whole interval of the ratio lies above the minimum effect."""
    FASTER = "faster", "{changed}"
    """The whole interval of the ratio lies below the inverse of the minimum effect."""
    SLOW_CALLS = "slow-calls", _slow_calls
    """The median is not slower, but calls of the contender are slow, and raise the geometric mean by more than `tail_effect`."""
    FEWER_SLOW_CALLS = "fewer-slow-calls", _slow_calls
    """The median is not faster, but the contender has fewer slow calls, which lowers the geometric mean as much."""
    TAIL_NOT_DECIDED = "tail-not-decided", _tail_undecided
    """The median is proved to be unchanged or faster, and slow calls could still cost more than `tail_tolerance`."""
    MEAN_SLOWER = "mean-slower", "not decided: the median is {median:typical}, but with slow calls the mean is {changed}; --statistic mean decides by the mean"
    """The median and the tail are proved to be unchanged or better, and the mean of the calls is slower."""
    RARE_SLOW_CALLS = "rare-slow-calls", "rare slow calls: the mean of the calls is {changed}, the median unchanged"
    """The median and the tail are not slower, but few calls of the contender are, and raise the mean by more than `tail_effect`."""
    RETRACED = "retraced", "not decided: most calls trace a function again, such as for a tensor of another shape, so calls that find it traced are not compared; call the step with each shape before bench, or pass tensors instead of Python numbers"
    WORK_BESIDE = "work-beside", "not decided: the calls are {calls:change}, but with the work that they leave to threads, child processes, signals or the garbage collector they are {changed}; have the step do that work"
    RESTLESS = "restless", "not decided: threads or child processes of the contender alone still worked a second after the last call, and that work is not part of its time; wait for it in the step, or stop them"
    MORE_COLLECTIONS = "more-collections", "not decided: gc.set_threshold or gc.enable makes Python collect garbage more often than in the baseline, which the times of calls leave out; let both sides collect alike"
    SET_LATE = "set-late", "not decided: after TensorFlow's import, the benchmark sets {now:some or no variable}, and the baseline {before:some or none}; set variables before `import tensorflow` at the top of its file, or before pytest starts"
    WITHIN_TOLERANCE = "within-tolerance", "within {tolerance:.1%} either way: {changed}"
    """The change lies within the policy's tolerance."""
    NOT_DECIDED = "not-decided", _undecided
    RACING = "racing", _undecided
    """The race needs more launches. No report has this code."""
    NOT_CONFIRMED = "not-confirmed"
    """The first race, or the first job, found a regression and the second did not."""
    INTERRUPTED = "interrupted", "the run was interrupted before this was confirmed: "
    FEW_CASES = "few-cases", "{cases:case were} raced against the baseline, and a mean needs {needed}"
    DISTURBED = "disturbed", "not decided, as {launches:launch were} discarded: {why}"
    WITHIN_ABS_TOLERANCE = "within-slack", "within {tolerance:ms} either way: {difference:+ms}"
    """The change of a first call is below the policy's absolute tolerance in seconds."""

    # The saved times of a baseline

    SAVED_TIMES = "saved-times", "not raced: its fastest call took {before:duration} when it was saved, and {now:duration} now; saved times decide on no case"
    OTHER_MACHINE = "other-machine", "{spec} is of another machine or environment: {differences:all}"
    OTHER_CACHE = "other-cache", "the baseline ran with a {before} cache, this side with a {now} one; pass the same cache= to bench"
    BENCHMARK_CHANGED = "benchmark-changed", "the benchmark's own code has changed since the baseline was saved, so its saved times cannot be compared"

    # Cases and sides without a comparison

    NO_BASELINE = "no-baseline"
    """The run had no baseline, so the case raced the other variants only."""
    NOT_IN_BASELINE = "not-in-baseline", _no_value
    ADDED = "added", "{spec} does not have the case"
    NOT_COLLECTED = "not-collected"
    """The baseline has the case and the suite no longer collects it."""
    DESELECTED_HERE = "deselected-here"
    """The baseline would run the case under the same options, and this run's own marks, hooks or settings deselect it."""
    SKIPPED_ON_ONE_SIDE = "skipped-on-one-side"
    """One of the two sides cannot run the case, or skips it."""
    NO_SOURCE = "no-source", "{spec}: {error}"
    NO_ENVIRONMENT = "no-environment", "{spec}: its environment cannot be recreated: {error}"
    SAME_CODE = "same-code", "not raced, because both sides have the same benchmark, files of the project that it reads ({files}), graphs, loaded packages and settings"
    """Not raced, because both sides run the same code, graphs and packages (``--changed-only``)."""
    OTHER_NATIVE_CODE = "other-native-code"
    """A side has not run the native code of its own source tree, or only one of the sides has run any."""
    OTHER_ENVIRONMENT = "other-environment", "{spec} could not be recreated as it was: {differences:all}"

    # Failures

    BROKEN = "broken", _failed
    DIED = "died", _failed
    HUNG = "hung", _failed
    SIDE = "side", _failed
    NOT_MEASURED = "not-measured", "{why}"
    NOT_COLLECTED_HERE = "not-collected-here", "pytest could not collect it, so its cases are unknown: {error}"
    INTERNAL = "internal", "tfbench itself failed: {error}; please report it with its traceback"

    # Metrics other than time

    SAME = "same", _same
    MORE = "more", _values_changed
    FEWER = "fewer", _values_changed
    OTHER = "other", lambda **facts: f"{_values_changed(**facts)}: neither better nor worse by itself"
    NOT_EXACT = "not-exact", "{values}, but it is not exact here: {how}"
    NOT_GATED = "not-gated", "reported, and gated under --gate-device only: "
    UNGATED = "ungated", "shown and not gated ({why}): "
    NOT_READ = "not-read", _not_read
    NOT_PROBED = "not-probed", "{timed} was timed, but its probe failed: {error}"

    # Contracts

    CONTRACT_HELD = "contract-held"
    CONTRACT_BROKEN = "contract-broken"
    CONTRACT_OPEN = "contract-open"
    """The evidence does not show whether the contract holds."""
    CONTRACT_UNREADABLE = "contract-unreadable"
    """The contract cannot be checked because its evidence is missing."""


class Note(_Code):
    """Codes of notes, which say more about a reason, with their words."""

    # The race

    LOPSIDED = "lopsided", "not decided: {differing} of {launches} launches disagree with the rest, and the mean of all launches is {mean:change}; one side may be bimodal, as the launches in --report-html show"
    NEIGHBOURS = "neighbours", "other programs ran on the processors of the race, and their time cannot be distinguished from the step's waits, so its time may be up to {doubt:effect} than shown: race on other processors (--cpus) or on a quieter machine"
    RARE_CALLS = "rare-calls", "{rounds} rounds may miss calls that are slow more rarely than {share:.0%}"
    COVERED = "covered", _covered
    FIRST_CALL_PARTS = "first-call-parts", _first_call_parts
    CALLS = "calls", words.calls
    CACHE = "cache", "{state} cache"
    HIDDEN = "hidden", "hidden behind dispatch: other kernels would hardly change the time; give it larger shapes (--scale), or compare kernels (--gate-device 5%)"
    OWN_TIMES = "own-times", "one time per launch, as the benchmark takes and reports it itself"
    PER_ITEM = "per-item", "per item: a call had {before:g}, and has {now:g} now"
    TWO_SPEEDS = "two-speeds", "calls take {fast:duration} or {slow:duration}: {shares[0]:.0%} of the baseline's were slow, and {shares[1]:.0%} of the contender's"
    RESTLESS = "restless", "threads or child processes of both sides still worked a second after the last call; that work is not compared"
    OWN_THRESHOLDS = "own-thresholds", lambda **values: f"own thresholds: {words.thresholds(values)}"
    STRICTER_THRESHOLDS = "stricter-thresholds", lambda **values: f"its own thresholds ({words.thresholds(values)}) are looser than the baseline's, so the stricter ones count"
    UNWANTED = "unwanted", "an improvement fails this run (--fail-on-improvement): does the step still do its work?"
    OTHER_MARK = "other-mark", "its {mark} are {before} in the other side's own benchmark, and {now} on both sides here"
    OWN_FILE = "own-file", "raced with the other side's own benchmark file, because that side cannot run the working tree's: "
    BREAKS_THERE = "breaks-there", "the other side cannot run it either: "
    BENCHMARK_CHANGED = "benchmark-changed", "the benchmark's own code has changed since the baseline was saved"
    SHARED_LIBRARY = "shared-library", "the {side} side ({spec}) has loaded {libraries:some} of the working tree, so both sides run the same copy; find it relative to the code that loads it, or keep it outside of the checkout if both sides share it"
    COMPILED_LIBRARY = "compiled-library", "on the {side} side, an import has compiled {libraries:some} outside of the source tree, where both sides use the same copy; compile it below the code, such as by pyximport.install(build_dir=str(Path(__file__).parent / 'build'))"
    ONE_SIDED_LIBRARY = "one-sided-library", "only the {side} side has loaded {libraries:some}, so the other side ({other:or working tree}) may have run a substitute; build it for both sides: install each version into an environment of its own, and race them with --against python:PATH"
    ONE_SIDED_MODULE = "one-sided-module", "only the {side} side has {modules:some}, which git ignores, so the other side ({other}) may have run a substitute; commit it, or install each version into an environment of its own, and race them with --against python:PATH"

    # Two races

    FOUND_TWICE = "found-twice", "found twice, the first time as "
    FIRST_RACE = "first-race", "a first race said: "
    FRESH_LAUNCHES = "fresh-launches", "fresh launches did not confirm it: "

    # A suite

    MEAN = "mean", _mean
    TOO_FEW_AGAIN = "too-few-again", "too few cases could be raced again to confirm it"
    FIRST_MEAN = "first-mean", "fresh launches did not confirm what came first: "

    # Saved times

    RACE_ALL = "race-all", "race it with --replay all"

    # Cases and sides without a comparison

    VARIANTS_ONLY = "variants-only", "measured; compared with the other variants only, as the run has no baseline"
    MEASURED = "measured", "measured: {kind}"
    NOT_SAVED = "not-saved", "the baseline {name!r} does not have the case"
    UNVERSIONED = "unversioned", "{spec} was saved outside version control, so its code cannot be recreated; save it in a git checkout"
    GONE = "gone", "in {spec} but no longer collected; was it deleted, or renamed and changed, or is it outside tfbench_paths?"
    OUTSIDE = "outside", "{file} is still there, and this run collects no benchmark in {folder}; if it has the case, name {folder} in tfbench_paths as well"
    GONE_SINCE = "gone-since", "in the baseline {name!r} but no longer collected; was it deleted or renamed?"
    IN_NO_JOB = "in-no-job", "the other side runs it under the same options, and no job has it; was it deleted, renamed or deselected?"
    RUNS_THERE = "runs-there", f"{{spec}} runs it under the same options, and it is deselected here; {_DESELECTING}"
    RAN_THEN = "ran-then", f"the baseline {{name!r}} has it and its code runs it under the same options, and it is deselected here; {_DESELECTING}"
    MAY_HAVE_RUN = "may-have-run", "the baseline {name!r} has it, it is deselected here, and whether its code runs it is unknown: "
    CANNOT_RUN = "cannot-run", "the {side} side cannot run it: {why}"
    SKIPPED_HERE = "skipped-here", "skipped here, and {spec} runs it: {why}"
    SKIPPED_NOW = "skipped-now", "skipped here, and measured in the baseline {name!r}: {why}"

    # Failures

    LATER_STEP = "later-step", "the case was timed, then a later step failed: "
    FIX = "fix", "{fix}"

    # Metrics other than time

    CHANGE = "change", _values_changed
    FEW_LAUNCHES = "few-launches", "{values}, but {needed:launch} of each side are needed, as --policy standard has"
    RESULT = "result", _result
    RESULT_GONE = "result-gone", "is missing ({why}), and the baseline's step returns numbers: does the step still do its work?"
    OUTPUTS = "outputs", _outputs
    NO_VALUE = "no-value", "no value in the baseline"
    OTHER_METRICS = "other-metrics", "other metrics: "
    METRIC = "metric", "{metric} "

    # Contracts

    UNDECIDED = "undecided", "not decided, until more launches (--policy strict) or a quieter machine narrow the interval: "
    OPS = "ops", _ops
    OTHER_OPS = "other-ops", _other_ops
    NO_GRAPH = "no-graph", "the ops of expect_ops could not be counted: {why}"
    KERNELS = "kernels", lambda counts: f"XLA compiled {plural(sum(counts.values()), 'kernel')}: {words.named(counts)}"
    NOT_COMPILED = "not-compiled", "compilation by XLA expected: {why}"
    WHY = "why", "{why}"
    TRACES = "traces", _traces
    PEAK = "peak", "peak of {peak:bytes}, {limit:bytes} allowed"
    NO_PEAK = "no-peak", "this system does not report the memory of a process"
    LEAKS = "leaks", _leaks
    NO_LEAK = "no-leak", "the process does not grow with its calls"
    UNREAD = "unread", "{metric} could not be read: {why}"
    NO_RESULT = "no-result", "the result has no comparison: {why}"
    SPEED = "speed", "{ratio.center:.2f}x as fast as {other}, {claim:claimed} ({evidence})"
    LIMIT = "limit", _limit
    NO_RACE = "no-race", "{other}: {claim:claimed}; {why}"
    BROKE = "broke", "the benchmark broke in a race against {other}: {error}"
    OTHER_VARIANT = "other-variant", "{other}: {why}"
    ACCURACY = "accuracy", "accuracy {accuracy:.2%}, {theirs:.2%} of {other}, {allowed:points} less allowed"
    SIZE = "size", _size

# fmt: on

_BEFORE = (Note.BENCHMARK_CHANGED,)
"""Notes that a reader must know before the sentence itself."""


class Reason(msgspec.Struct, frozen=True, eq=False, omit_defaults=True):
    """Why a verdict has its outcome, or a note on that. Equal ones have the same code and the same words."""

    code: Name
    """A member of `ReasonCode` or `Note`. A plain string in a report from a file: another version may have written it."""
    message: Text
    """The reason in words, which `because` makes of the facts and notes."""
    facts: Free = msgspec.field(default_factory=dict)
    """Numbers, names, and in a reason of this process also `Ratio` and `Calls`: the arguments of its words."""
    notes: tuple[Reason, ...] = ()

    def noted(self, *notes: Reason | None) -> Reason:
        """Return the reason with further notes. They follow its sentence, or complete one that ends with a space."""
        more = tuple(note for note in notes if note is not None)
        before = [note.message for note in more if note.code in _BEFORE]
        after = "; ".join(note.message for note in more if note.code not in _BEFORE)
        text = self.message + after if self.message.endswith(" ") else "; ".join(filter(None, (self.message, after)))
        return Reason(self.code, "; ".join((*before, text)), self.facts, (*self.notes, *more))

    def __str__(self) -> str:
        return self.message

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reason) and (self.code, self.message) == (other.code, other.message)

    def __hash__(self) -> int:
        return hash((self.code, self.message))


def because(code: ReasonCode | Note, /, *notes: Reason | None, **facts: Any) -> Reason:
    """Make a reason or a note from its facts, which are the arguments of its words, and from notes.

    Without the facts that its sentence needs, the notes of a reason say all.
    """
    if isinstance(code.words, str):
        text = _Template().vformat(code.words, (), facts) if facts or "{" not in code.words else ""
    else:
        text = code.words(**facts) if facts else ""
    return Reason(code, text, facts).noted(*notes)
