"""Declare each option of a run on one line: its type, help, value and default, and what depends on it."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

from tfbench.errors import UsageError
from tfbench.model import STATISTICS
from tfbench.policy import PRESETS, Policy, preset
from tfbench.storage.baselines import HISTORY, PROFILES
from tfbench.suite.axes import SCALES, SMALL, VARIABLE
from tfbench.suite.shards import Shard, parse_shard

PREFIX = "--tfbench-"
"""Every option has a name with this prefix, which no other plugin takes."""
GATE, RESULT, ASKS = "gate", "result", "asks"
"""Roles of an option: it decides what passes; results differ with it; it asks for a result, so that a run without ``--benchmark``
would pass without what it was to do."""
ALL, NEVER = CHOICES = ("all", "never")
"""Cases of a saved baseline to race again live."""


@dataclass(frozen=True)
class Option:
    """An option of pytest, whose name on the command line is ``--NAME`` or ``--tfbench-NAME``."""

    name: str
    help: str
    metavar: str
    """Empty for a flag."""
    roles: tuple[str, ...]
    default: str = ""
    const: str | None = None
    """The value of the option without a value, if it may have none."""
    read: Callable[[str], Any] = str
    """Turns the text of the value, ``""`` without one, into the value of the field."""

    @property
    def setting(self) -> str:
        """Its name in Python."""
        return self.name.replace("-", "_")

    def attributes(self) -> dict[str, Any]:
        """Return the keywords for argparse, but for ``help``."""
        # argparse would take a default of "" for a given value.
        default = self.default or None
        value: dict[str, Any] = {"metavar": self.metavar, "default": default, "type": _given} if self.metavar else {}
        if self.const is not None:
            value |= {"nargs": "?", "const": self.const}
        return {"dest": f"tfbench_{self.setting}", **(value or {"action": "store_true"})}


def _given(text: str) -> str:
    """Return the value of an option.

    Raises `ArgumentTypeError` if it is empty, such as an unset variable of a shell: the run would pass without what it
    was to do.
    """
    if not text:
        raise argparse.ArgumentTypeError("the value is empty; give one, or leave the option out")
    return text


def read_number(value: Any) -> float:
    """Read a number; return NaN, which lies between no bounds, for anything else."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def read_fraction(text: str) -> float:
    """Read ``5%`` or ``0.05`` as `read_number` does."""
    return read_number(text[:-1]) / 100 if text.endswith("%") else read_number(text)


def _fraction(name: str, fits: Callable[[float], bool], fix: str) -> Callable[[str], float]:
    def read(text: str) -> float:
        if not fits(value := read_fraction(text or "0")) and text:
            raise UsageError(f"--{name} {text!r}: write {fix}")
        return value

    return read


def _choice(name: str, choices: tuple[str, ...], text: str) -> str:
    if text and text not in choices:
        raise UsageError(f"--{name} {text!r}: choose from {', '.join(choices)}")
    return text


_SLOWDOWN = _fraction("inject-slowdown", lambda value: 0 <= value <= 10, "a fraction up to 10, such as 0.10 for 10%")
_MEAN = _fraction("gate-suite", lambda value: 0 < value < 1, "the slowdown of the mean to find, such as 0.5% or 0.005")
_DEVICE = _fraction("gate-device", lambda value: 0 < value < 0.5, "the growth to find, below half, such as 5% or 0.05")


def _option(text: str, metavar: str = "", *roles: str, **more: Any) -> Any:
    """Return the field of an option with these keywords of `Option`."""
    made = partial(Option, help=text, metavar=metavar, roles=roles, **more)
    unused = made(name="")
    return field(default=unused.read(unused.default) if metavar else False, metadata={"option": made})


@dataclass(frozen=True)
class RunOptions:
    """The options of a run, checked and parsed. Each field is an option of pytest, present under ``--benchmark`` only."""

    # fmt: off
    policy: Policy = _option("preset of thresholds and budgets (default: %(default)s)", "|".join(PRESETS), GATE, default="standard", read=preset)  # noqa: RUF009
    statistic: str = _option("what a verdict on time is about: median and tail (the default), or mean", "NAME", GATE, read=partial(_choice, "statistic", tuple(STATISTICS)))
    against: str = _option("race a live side: self, PACKAGE==VERSION, tf-nightly, env:NAME=VALUE, python:PATH, git:REV, joined by +", "SPEC", ASKS)
    save_baseline: str = _option("save the measurements under this name, unless the run fails", "NAME", ASKS)
    baseline: str = _option("gate against a saved baseline", "NAME", ASKS)
    replay: str = _option("cases of a saved baseline to race again live (default: %(default)s)", "all|never", RESULT, default=ALL, read=partial(_choice, "replay", CHOICES))
    inject_slowdown: float = _option("make the contender run the fraction F of extra iterations", "F", RESULT, default="0", read=_SLOWDOWN)
    device: str = _option("devices to measure on (default: %(default)s); GPUs by index or UUID", "cpu|gpu|all|gpu:0,1", RESULT, default="all")
    scale: str = _option(f"shapes of the benchmarks (default: {VARIABLE} or {SMALL})", "|".join(SCALES), GATE)
    require_gpu: bool = _option("fail without a GPU, instead of skipping its cases", "", GATE)
    cpus: str = _option("processors for the workers, such as 0,2-3 (default: the last one)", "LIST")
    lanes: str = _option("cases that race at the same time, each on two processors of its own (default: %(default)s)", "N", default="1")
    strict_gate: bool = _option("also fail on inconclusive, incomparable and missing results", "", GATE)
    fail_on_improvement: bool = _option("also fail on improved times: does the benchmark still do its work?", "", GATE, RESULT)
    shard: Shard | None = _option("run one part of the cases, such as 2/4; tfbench gate merges the reports", "N/OF", ASKS, read=lambda text: parse_shard(text) if text else None)  # noqa: RUF009
    job: str = _option("measure as the job of a fleet in this file; tfbench fleet job starts pytest so", "FILE", ASKS)
    resume: bool = _option("go on after an interruption: use the finished cases of the same code and environment", "", ASKS)
    gate_suite: float = _option("also judge the mean of all cases, and fail if it is slower by F, such as 0.5%%", "F", GATE, ASKS, read=_MEAN)
    gate_device: float = _option("fail on a GPU if device time or energy of a step grows by more than F, such as 5%%", "F", GATE, ASKS, read=_DEVICE)
    changed_only: bool = _option("do not race cases whose code, graphs and packages are the same on both sides, but for a sample", "", GATE, ASKS, RESULT)
    report_json: str = _option("write the report as JSON", "PATH", ASKS)
    report_html: str = _option("write the report as a page: one file with charts, for a browser", "PATH", ASKS)
    report_markdown: str = _option("write the report as Markdown, for a pull request", "PATH", ASKS)
    history: str = _option(f"add this run to the history in DIR (default: {HISTORY}), with its baseline side as the anchor", "DIR", ASKS, const=HISTORY)
    profile: str = _option(f"profile each case in a separate launch, into DIR (default: {PROFILES})", "DIR", RESULT, const=PROFILES)
    profile_on_regression: bool = _option("profile both sides of each regressed case, and explain the slowdown", "", RESULT)
    # fmt: on

    @classmethod
    def of(cls, given: argparse.Namespace) -> RunOptions:
        """Read the options that pytest has parsed. Raises `UsageError` if a value is invalid."""
        read: dict[str, Any] = {}
        for option in OPTIONS:
            text = getattr(given, f"tfbench_{option.setting}")
            read[option.setting] = option.read(text or option.default) if option.metavar else bool(text)
        options = cls(**read)
        policy = options.policy.with_device_gate(options.gate_device)
        return replace(options, policy=replace(policy, statistic=options.statistic or policy.statistic))


OPTIONS = tuple(one.metadata["option"](one.name.replace("_", "-")) for one in fields(RunOptions))
