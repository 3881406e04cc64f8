"""What the user writes behind ``--against``: from text to a `Side`."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

from tfbench.errors import UsageError
from tfbench.sides.side import Side
from tfbench.sides.tree import materialise, tree_of

KINDS = "self, env:NAME=VALUE, python:PATH, git:REV, joined by +"


def parse(spec: str, contender: Side, cache: Path) -> Side:
    """The baseline side that ``spec`` describes, everything it does not name being the contender's.

    Args:
        cache: Folder for source trees that have to be made.

    Raises:
        UsageError: The text is no specification, or names what is not there.
        SideError: A source tree cannot be made.
    """
    side = replace(contender, name="baseline", spec=spec, slowdown=0.0)
    for part in spec.split("+"):
        kind, _, value = part.strip().partition(":")
        if kind == "self" and not value:
            continue
        if kind == "env" and (setting := re.fullmatch(r"([A-Za-z_]\w*)=(.*)", value)):
            side = replace(side, env={**side.env, setting[1]: setting[2]})
        elif kind == "python" and value:
            executable = shutil.which(value)
            if executable is None:
                raise UsageError(f"--against {part}: there is no interpreter {value}")
            side = replace(side, executable=str(Path(executable).absolute()))
        elif kind == "git" and value:
            root = materialise(contender.root, tree_of(contender.root, value), cache)
            side = replace(side, root=root)
        else:
            raise UsageError(f"--against {part!r} is not understood; there are {KINDS}")
    return side
