"""What versions do by default: settings and imports.

Where graphs and XLA's modules are the same, the code that XLA makes of them may differ. Its flags say how.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import log
from pathlib import Path
from typing import NamedTuple

from tfbench.errors import BenchmarkError, SideError, WorkerHung
from tfbench.model import ONCE, Case, Plan, Ratio
from tfbench.model.words import times
from tfbench.policy import Policy
from tfbench.protocol import Prepared
from tfbench.race.launch import Entrant, Failure, OpenLaunch
from tfbench.race.process_launcher import Environment, ProcessLauncher
from tfbench.race.workers import check_threads, worker_environment
from tfbench.sides.spec import Side
from tfbench.untrusted import an_object, parse_json, texts

# Race imports: every launch starts a fresh interpreter of each side and times the import in it


CASES = tuple(Case(name, name, name) for name in ("import tensorflow", "import tensorflow, then Keras"))
"""What is raced. TensorFlow imports Keras at its first use."""
_PROGRAM = """
import json, os, sys, time
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, json.loads(sys.argv[1]))
began = time.perf_counter()
import tensorflow as tf
if sys.argv[2] == "Keras":
    tf.keras.layers.Dense
sys.stdout.write(json.dumps([time.perf_counter() - began, len(sys.modules)]))
"""


class ImportLauncher(ProcessLauncher):
    """Opens launches of fresh interpreters, which import and end. Zygotes tell only what the sides are."""

    def ready(self, wanted: Iterable[tuple[Side, Environment]], pairs: Iterable[int]) -> None:
        # A race asks for several pairs. One zygote describes its side, and has read the files of its packages once.
        super().ready(wanted, [0])

    def open(self, entrants: Sequence[Entrant], pair: int) -> OpenLaunch:
        self.ready([(entrant.side, ()) for entrant in entrants], [pair])
        return ImportLaunch(entrants, pair, self.processors.one, self._policy)


@dataclass
class ImportLaunch:
    """One import on each side, one after the other on the same processor."""

    entrants: Sequence[Entrant]
    pair: int
    cpus: Sequence[int]
    policy: Policy
    _seconds: dict[int, float] = field(default_factory=dict, init=False)

    def prepare(
        self,
        entrants: Sequence[int],
        brief: bool = False,
        together: bool = True,
        ahead: OpenLaunch | None = None,
    ) -> dict[int, Prepared | Failure]:
        found: dict[int, Prepared | Failure] = {}
        for entrant in entrants:
            try:
                seconds, modules = self._import(self.entrants[entrant])
            except BenchmarkError as error:
                found[entrant] = error
            else:
                self._seconds[entrant] = seconds
                found[entrant] = Prepared(seconds, {ONCE: True, "modules": modules})
        return found

    def _import(self, entrant: Entrant) -> tuple[float, int]:
        """Return the seconds of an import, and how many modules it loads."""
        check_threads(entrant.side, {}, self.cpus, self.cpus)
        env = worker_environment(dict(os.environ), entrant.side, {})
        command = [entrant.side.executable, "-c", _PROGRAM, json.dumps(list(self.cpus)), entrant.case.name.split()[-1]]
        try:
            done = subprocess.run(
                command, cwd=Path(entrant.side.root), env=env, capture_output=True, text=True,
                timeout=self.policy.start_seconds, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise WorkerHung(f"the import takes longer than {self.policy.start_seconds:.0f} s") from None
        if done.returncode:
            last = (done.stderr.strip() or f"exit code {done.returncode}").rpartition("\n")[2]
            raise BenchmarkError(f"the import fails: {last}", done.stderr)
        seconds, modules = json.loads(done.stdout.strip().rpartition("\n")[2])
        return float(seconds), int(modules)

    @property
    def preempted(self) -> Mapping[int, Mapping[int, float]]:
        """Return nothing: an import is timed by the clock alone."""
        return {}

    def rounds(self, plan: Plan, orders: Sequence[Sequence[int]]) -> dict[int, list[float]]:
        return {entrant: [seconds] * len(orders) for entrant, seconds in self._seconds.items()}

    def kill(self) -> None:
        """Do nothing: the processes have ended."""


# Find the default whose change explains a slowdown: compare the flags of two sides, and race each set back


XLA = "XLA_FLAGS"
MOST = 12
"""Candidates that are raced at most. A race takes 20 seconds, so all of them four minutes."""
ENOUGH = 0.8
"""A candidate that removes this share of the slowdown is the cause: the search ends, as the rest is noise of the race."""
NOTABLE = 0.2
"""A candidate below this share is not named: half of it is the width of an interval in a quick race."""
_SECONDS = 120
"""An import of TensorFlow takes 20 s on a busy machine."""
_FLAG = re.compile(r"^\s+--(\w+)=(\"[^\"]*\"|\S*)\s+(bool|string|int32|int64|float|double)\b", re.MULTILINE)
_SKIPPED = (
    "gpu",
    "dump",
    "print",
    "tpu",
    "step_marker",
    "crash",
    "reset",
    "command_buffer",
    "trace",
    "rocm",
    "cuda",
    "nccl",
)
"""Parts of names of flags that change no code on a CPU."""
_XLA_PROGRAM = "import tensorflow as tf; tf.function(lambda x: x + x, jit_compile=True)(tf.ones([4]))"
_defaults_PROGRAM = """
import json, sys
import tensorflow as tf
found = {}
try:
    from tensorflow.core.config import flags
    config = flags.config()
    for name in dir(config):
        flag = getattr(config, name)
        if hasattr(flag, "value"):
            found["TF_" + name.upper()] = str(flag.value()).lower()
except Exception:
    pass
try:  # a graph tells whether oneDNN is used: TensorFlow 2.10 uses it and denies it
    from tensorflow.python.eager import context
    kernel = tf.ones([3, 3, 8, 8])
    step = tf.function(lambda x: tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, kernel, 1, "SAME"), tf.ones([8]))))
    context.context().enable_graph_collection()
    step(tf.ones([1, 16, 16, 8]))
    graphs = context.context().export_run_metadata().function_graphs
    ops = [node.op for graph in graphs for part in graph.partition_graphs for node in part.node]
    found["TF_ENABLE_ONEDNN_OPTS"] = str(int(any("_Mkl" in op for op in ops)))
except Exception:
    pass
try:
    backend = tf.keras.backend
    found["Keras' backend"] = str(backend.backend())
    found["Keras' floatx"] = str(backend.floatx())
    found["Keras' image_data_format"] = str(backend.image_data_format())
except Exception:
    pass
sys.stdout.write("\\n" + json.dumps(found))
"""


class Default(NamedTuple):
    """The default of a flag or setting."""

    value: str
    kind: str = ""
    """Type of a flag of XLA, such as ``bool``; ``""`` for a setting of TensorFlow or Keras."""


@dataclass(frozen=True)
class Candidate:
    """A default of the bad side, and the setting that sets it back."""

    name: str
    was: str
    """The default of the good side, ``""`` if it does not have the flag."""
    now: str
    back: str
    """The value that it is set to."""

    @property
    def env(self) -> tuple[str, str]:
        """Environment variable and its value."""
        return (XLA, f"{self.name}={self.back}") if self.name.startswith("--") else (self.name, self.back)

    def __str__(self) -> str:
        return f"{self.name} ({self.was or 'absent'} before, {self.now} now), set to {self.back}"


class Removal(NamedTuple):
    """A candidate that removes a part of a slowdown."""

    candidate: Candidate
    share: float
    """Of the slowdown. Above 1 if the side becomes faster than the good one."""
    ratio: Ratio
    """Of the bad side with the candidate to the good side."""

    def __str__(self) -> str:
        return (
            f"default: {self.candidate} removes {min(1.0, self.share):.0%} of the slowdown: ratio {times(self.ratio)}"
        )


def defaults_of(side: Side) -> dict[str, Default]:
    """Return the flags of XLA, TensorFlow's flags and Keras' settings with their defaults on a side.

    Raises:
        SideError: The side prints neither.
    """
    # XLA prints its flags and ends the process with an error, because it does not know this one.
    printed = _run(side, _XLA_PROGRAM, {XLA: "--help"})
    flags = {f"--{name}": Default(value.strip('"'), kind) for name, value, kind in _FLAG.findall(printed)}
    last = _run(side, _defaults_PROGRAM, {}).strip().rpartition("\n")[2]
    try:
        others = texts(an_object(parse_json(last), "the settings"), "the settings")
    except ValueError:
        others = {}
    if not flags and not others:
        raise SideError(f"{side.spec}: prints neither flags of XLA nor settings of TensorFlow: {printed[-300:]}")
    return flags | {name: Default(value) for name, value in others.items()}


def _run(side: Side, program: str, extra: Mapping[str, str]) -> str:
    env = worker_environment(dict(os.environ), side, extra)
    try:
        done = subprocess.run(
            [side.executable, "-c", program], env=env, capture_output=True, text=True, errors="replace", check=False,
            timeout=_SECONDS, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SideError(f"{side.spec}: its flags cannot be read: {error}") from None
    return done.stderr + done.stdout


def candidates(good: Mapping[str, Default], bad: Mapping[str, Default]) -> list[Candidate]:
    """Return the settings of the bad side to race, those with another default first, at most `MOST`.

    A new flag is set to what the good side probably did: a switch to its opposite, and a number to 1 and to its double.
    """
    changed: list[Candidate] = []
    new: list[Candidate] = []
    for name, now in bad.items():
        was, (value, kind) = good.get(name), now
        if was == now or any(part in name.lower() for part in _SKIPPED) or name.startswith("Keras"):
            continue
        if was is not None:
            changed.append(Candidate(name, was.value, value, was.value))
        elif kind == "bool":
            new.append(Candidate(name, "", value, "false" if value == "true" else "true"))
        elif kind.startswith("int") and value.isdigit() and int(value) > 1:
            new += [Candidate(name, "", value, str(other)) for other in (1, 2 * int(value))]
    # A switch that is on acts, and one that is off usually does not exist in effect.
    new.sort(key=lambda one: ("cpu" not in one.name, one.now == "false"))
    return [*changed, *new][:MOST]


def set_back(side: Side, candidate: Candidate) -> Side:
    """Return the side with this default set back."""
    name, value = candidate.env
    given = side.env.get(name, "")
    both = f"{given} {value}".strip() if name == XLA else value
    return replace(side, name=f"{side.name} with {value}"[:80], env={**side.env, name: both}, named=(*side.named, name))


def share(bad: Ratio, back: Ratio) -> float:
    """Return the share of a slowdown that a setting removes, on the scale of logarithms of ratios to the good side."""
    return 1 - log(back.center) / log(bad.center)


def search(
    bad: Ratio, found: Sequence[Candidate], race: Callable[[Candidate], Ratio | str], tell: Callable[[str], None]
) -> list[Removal]:
    """Race candidates until one removes the slowdown; return each that removes a share of it, the largest first.

    Args:
        bad: The slowdown, a ratio to the good side.
        race: Returns the ratio of the bad side with the candidate to the good side, or why it cannot run.
    """
    removals: list[Removal] = []
    for number, candidate in enumerate(found, 1):
        tell(f"default {number}/{len(found)}: {candidate.name}")
        ratio = race(candidate)
        if isinstance(ratio, str):
            continue
        removed = share(bad, ratio)
        if removed >= NOTABLE and ratio.high < bad.center:
            removals.append(Removal(candidate, removed, ratio))
            if removed >= ENOUGH:
                break
    return sorted(removals, key=lambda removal: -removal.share)
