"""Reports as a run writes them at its end."""

from tfbench.model import TIME, Case, Outcome, Reason, Report, Verdict

CODE = {"commit": "1" * 40, "dirty": False, "tree": "2" * 40}
"""The code of a side."""
SIDES = {"contender": {"spec": "working tree", **CODE}}


def row(name, outcome=Outcome.UNCHANGED, metric=TIME, text="why", **more):
    """Return a verdict on a case."""
    return Verdict(Case(name, "w", name), Outcome(outcome), Reason("code", text), metric, **more)


def complete(verdicts=(), skips=(), **fields):
    """Return a complete report in which exactly the cases with these rows were due."""
    names = [verdict.case.name for verdict in verdicts]
    due = tuple(dict.fromkeys([*names, *(skip.case.name for skip in skips)]))
    fields = {"policy": {"name": "quick"}, "sides": SIDES, "due": due, "complete": True, **fields}
    return Report(verdicts=tuple(verdicts), skips=tuple(skips), **fields)
