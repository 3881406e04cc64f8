"""Profile pairs of cases of the project in this folder, as the gate profiles both sides of a regression.

``python -m tests.e2e.causes FOLDER BEFORE NOW [BEFORE NOW …]`` prints a JSON list with the causes of each pair.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tfbench.commands.setup import CommandSetup, add_selections
from tfbench.policy import preset
from tfbench.race.launch import Entrant
from tfbench.race.prober import Profiler
from tfbench.session.profiling import BASELINE, CONTENDER, take


def main() -> None:
    parser = argparse.ArgumentParser()
    add_selections(parser)
    parser.add_argument("folder", type=Path)
    parser.add_argument("cases", nargs="+")
    arguments = parser.parse_args()
    policy = preset("standard")
    with CommandSetup(arguments, [], policy) as setup:
        entrants = [Entrant(setup.collected.named(name), setup.contender) for name in arguments.cases]
        profiler = Profiler(setup.launcher, policy)
        print(json.dumps([
            reported(take(profiler, {BASELINE: before, CONTENDER: now}, arguments.folder))
            for before, now in zip(entrants[::2], entrants[1::2], strict=True)
        ]))  # fmt: skip


def reported(found):
    top = found.attribution.causes[0]
    return {
        "kinds": top.kinds,
        "where": top.category,
        "after": top.after,
        "share": top.share,
        "explained": found.attribution.explained,
        "why": found.why,
    }


if __name__ == "__main__":
    main()
