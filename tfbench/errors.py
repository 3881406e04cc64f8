"""One class per failure. Every message is one line that says what is wrong and how to fix it."""


class TfbenchError(Exception):
    """Base of everything that tfbench raises on purpose; its text is meant for the user."""


class UsageError(TfbenchError):
    """An option, a specification or a policy field has a value that cannot be used."""


class DeclarationError(TfbenchError):
    """A benchmark module declares something impossible: an axis twice, a case twice, an unknown level."""


class BenchmarkError(TfbenchError):
    """A benchmark broke: it raised, never called ``bench``, or gave no usable time.

    ``output`` is the tail of what its process printed.
    """

    def __init__(self, message: str, output: str = "") -> None:
        super().__init__(message)
        self.output = output


class BenchmarkSkipped(TfbenchError):
    """A benchmark cannot run here and says why (a missing device, an unsupported layout)."""


class WorkerDied(BenchmarkError):
    """A measuring process ended before it answered, by a signal or an exit of its own."""


class WorkerHung(BenchmarkError):
    """A measuring process did not answer within the policy's limit and was killed."""


class SideError(TfbenchError):
    """A side could not be made: its interpreter, environment or source tree is not usable."""


class ProtocolError(TfbenchError):
    """A message between the wings is not one that the protocol knows."""


class BaselineError(TfbenchError):
    """A saved baseline is unknown, unreadable or not ours."""


class ReportError(TfbenchError):
    """A report file is unreadable or not of the schema that this version reads."""


class ProfileError(TfbenchError):
    """A profile is not there, was cut short, or does not hold what a tool needs."""


class GpuError(SideError):
    """A GPU cannot be had or watched: no driver, no library, somebody else's lock, a device that has vanished."""


class LaunchDisturbed(TfbenchError):
    """What was timed does not count: something from outside was at work meanwhile, and the message says what."""
