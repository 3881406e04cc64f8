"""Reports as a run writes them at its end, and their rounds as a page reads them."""

import base64
import math
import struct

from tfbench.model import DECIDED, TIME, Case, Outcome, Ratio, Reason, Report, VariantResult, Verdict
from tfbench.model.measurement import STEP

CODE = {"commit": "1" * 40, "dirty": False, "tree": "2" * 40}
"""The code of a side."""
SIDES = {"contender": {"spec": "working tree", **CODE}}


def judged(case, outcome, reason, metric=TIME, ratio=None, **more):
    """Return a verdict, with some launches and rounds if it compares times, and a ratio if it needs one."""
    if metric == TIME and outcome in DECIDED:
        ratio = ratio or Ratio(1.0, 0.99, 1.01, 0.95)
    if metric == TIME and ratio:
        more = {"launches": 6, "rounds": 60, **more}
    return Verdict.of(case, outcome, reason, metric, ratio=ratio, **more)


def variant(case, reference, seconds, ratio=None, outcome=None, launches=3, rounds=300, facts=None):
    """Return the time of a variant, relative to the case that ``reference`` names."""
    return VariantResult.about(case, reference=reference, median_seconds=seconds, ratio=ratio, outcome=outcome,
                               launches=launches, rounds=rounds, facts=facts or {}, cpus=case.cpus)  # fmt: skip


def row(name, outcome=Outcome.UNCHANGED, metric=TIME, text="why", **more):
    """Return a verdict on a case, see `judged`."""
    return judged(Case(name, "w", name), Outcome(outcome), Reason("code", text), metric, **more)


def complete(verdicts=(), skips=(), **fields):
    """Return a complete report in which exactly the cases with these rows were due."""
    names = [verdict.case.name for verdict in verdicts]
    due = tuple(dict.fromkeys([*names, *(skip.case.name for skip in skips)]))
    fields = {"policy": {"name": "quick"}, "sides": SIDES, "due": due, "complete": True, **fields}
    return Report(verdicts=tuple(verdicts), skips=tuple(skips), **fields)


def decoded(rounds):
    """Return the seconds of the stored rounds of each launch, as the script of the page decodes them."""
    steps = struct.unpack(f"<{sum(rounds.launches)}h", base64.b64decode(rounds.steps))
    times = (rounds.median_seconds * math.exp(STEP * step) for step in steps)
    return [[next(times) for _ in range(launch)] for launch in rounds.launches]
