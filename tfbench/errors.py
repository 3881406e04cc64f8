"""Define one exception per failure. A message is one line that states what is wrong, where, and the fix."""

from __future__ import annotations

import re
from itertools import pairwise


class TfbenchError(Exception):
    """Base of every exception that tfbench raises on purpose. Its text is meant for the user."""

    @property
    def headline(self) -> str:
        """The first line of the text."""
        return str(self).partition("\n")[0]

    @property
    def rest(self) -> str:
        """The lines after the first one, such as what a process has printed."""
        return str(self).partition("\n")[2]


class UsageError(TfbenchError):
    """An option, a specification or a policy field has an unusable value."""


class DeclarationError(TfbenchError):
    """A benchmark module declares something impossible: an axis twice, a case twice, an unknown level."""


class BenchmarkError(TfbenchError):
    """A benchmark broke: it raised, never called ``bench``, or gave no usable time.

    ``output`` is the tail of the process' output.
    """

    def __init__(self, message: str, output: str = "") -> None:
        super().__init__(message)
        self.output = output


class BenchmarkSkipped(TfbenchError):
    """A benchmark cannot run on this machine, for the given reason (a missing device, an unsupported layout)."""


class WorkerDied(BenchmarkError):
    """A worker ended before it answered, by a signal or an exit of its own."""


class WorkerHung(BenchmarkError):
    """A worker did not answer within the policy's limit and was killed."""


class SideError(TfbenchError):
    """A side could not be created: its interpreter, environment or source tree is unusable."""


class ProtocolError(TfbenchError):
    """A message between controller and worker does not follow the protocol."""


class BaselineError(TfbenchError):
    """A saved baseline is unknown, unreadable or not written by tfbench."""


class HistoryError(TfbenchError):
    """A history has no such case, or no run at all."""


class ReportError(TfbenchError):
    """A report file is unreadable or has another schema than this version reads."""


class JobError(TfbenchError):
    """The file of a job cannot be read or was edited, or its report is not its own."""


class NodeError(TfbenchError):
    """A machine is not fit for a job: it has other code or versions."""


class EngineError(TfbenchError):
    """An engine is not installed, or does not answer."""


class ProfileError(TfbenchError):
    """A profile is missing, truncated, or lacks the data that a tool needs."""


class GpuError(SideError):
    """A GPU cannot be used or monitored: no driver, no library, a lock of another run, a vanished device."""


class LaunchDisturbed(TfbenchError):
    """The times of a launch do not count, because the named process or condition disturbed it."""


def headline_of(text: str) -> str:
    """Return the line that names the error in a text of pytest; ``""`` of an empty text.

    This is the first line of the last exception (``E   ValueError: …``). Lines before a `SyntaxError` are indented further.
    Without an exception, it is the last line.
    """
    last: list[str] = []
    for before, line in pairwise(["", *text.splitlines()]):
        if line.startswith("E "):
            last = [*(last if before.startswith("E ") else ()), line[1:]]
    if last := [line for line in last if line.strip()]:
        return min(last, key=lambda line: len(line) - len(line.lstrip())).strip()
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


_COLOURS = re.compile(r"\x1b\[[\d;]*m")
_LAYER = re.compile(r"(.*: Exception encountered when calling .*\.)\n\s*")
_USER_CODE = re.compile(r".*[:.] in user code:\n(.*\n)*?    (?!File )(?=[\w.]+(:|$))", re.MULTILINE)
_GRAPH = re.compile(r"(.*: )Graph execution error:\n(.*\n)*?(?=.*\n\s*\[\[)")


def error_line(text: str) -> str:
    """Return the line of an error's text that says what is wrong, out of the wraps of AutoGraph, graphs and Keras' layers."""
    text = _COLOURS.sub("", text).strip()
    if outer := _LAYER.match(text):
        text = f"{outer[1]} {text[outer.end() :]}"
    if inner := _USER_CODE.match(text):
        return error_line(text[inner.end() :].replace("\n    ", "\n"))
    if inner := _GRAPH.match(text):
        text = inner[1] + text[inner.end() :]
    return text.partition("\n")[0]
