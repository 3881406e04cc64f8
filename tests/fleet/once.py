"""Check that a fleet lost nothing and did nothing twice."""

from __future__ import annotations

from itertools import pairwise

from tests.fakes.fleet_job import intervals


def check_once(folder, report, jobs):
    """Check that each case has exactly one verdict, and that no two jobs measured on a processor at once."""
    names = [row.case.name for row in report.verdicts]
    assert len(names) == len(set(names)) == jobs
    assert {str(row.outcome) for row in report.verdicts} == {"unchanged"}
    assert all(a[1] <= b[0] for a, b in pairwise(intervals(folder)))
