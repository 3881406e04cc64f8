"""Confirm that an extracted file shows the difference of a race, and list what else differs between its sides."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tfbench.errors import TfbenchError
from tfbench.fs import scratch_dir
from tfbench.policy import Policy
from tfbench.race.interfaces import Entrant
from tfbench.race.prober import Prober
from tfbench.race.process_launcher import ProcessLauncher
from tfbench.session.explain import explained
from tfbench.sides.side import Side
from tfbench.untrusted import brief
from tfbench.versions.repro.write import ReproResult, run

_LIMIT = 5
"""A file with five launches may take so many times the policy's seconds for the set-up of one."""


def run_code(code: str, name: str, sides: tuple[Side, Side], policy: Policy) -> ReproResult:
    """Run the text of a file under a name in a folder of its own.

    Args:
        sides: The other side, and this one, whose interpreter runs it.

    Raises:
        TfbenchError: It fails, or takes too long.
    """
    other, own = sides
    with tempfile.TemporaryDirectory(dir=scratch_dir()) as folder:
        place = Path(folder, name)
        place.write_text(code, encoding="utf-8")
        return run(place, own.executable, other.executable, policy.setup_seconds * _LIMIT)


def changes(launcher: ProcessLauncher, policy: Policy, other: Entrant, own: Entrant) -> list[str]:
    """Return the changes of graphs and exact metrics, or why they are unknown, a line each."""
    try:
        launcher.start_pairs((other, own), [0])
        found = explained(Prober(launcher, policy), other, own)
    except TfbenchError as error:
        return [f"the graphs could not be compared: {brief(error)}"]
    lines = [": ".join(filter(None, row)) for row in found.changes]
    lines += [f"{name}: {before} before, {now} now; {what}" for name, before, now, what in found.metrics]
    return [*(lines or ["the graphs, XLA's modules and every exact metric are the same"]), *found.notes]
