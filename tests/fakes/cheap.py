"""Start one measuring process per side instead of six and time fewer rounds, for tests that are not about small differences.

A step with a real clock can end as undecided then: such tests script the clock, or ask whether the run is `Done.sound`.

Ancestors are forks of a process with TensorFlow, see `tests.fakes.preloaded`.

As a plugin: ``pytest -p tests.fakes.cheap``. As a program in place of ``tfbench``: ``python -m tests.fakes.cheap gate …``.
"""

from __future__ import annotations

import dataclasses
import sys

from tests.fakes import preloaded
from tfbench import policy
from tfbench.race import zygote

# One pair of zygotes shows nothing of how pairs differ, so the prior has to rule a difference out.
policy.PRESETS["quick"] = dataclasses.replace(
    policy.PRESETS["quick"], zygotes=1, zygote_deviation=5e-4, zygote_spread=0.1, rounds_max=60
)

_start_process = zygote.start_process
zygote.start_process = lambda *given: preloaded.start(*given) or _start_process(*given)  # type: ignore[assignment]

if __name__ == "__main__":
    from tfbench import cli

    sys.exit(cli.main())
