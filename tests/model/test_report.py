"""Whether a report shows the whole suite, and the rates of a calibration."""

from dataclasses import replace

import pytest

from tests.fakes.report import complete, row
from tfbench.model import Outcome, Skip

GOOD = complete([row("a"), row("b")])
SKIP = Skip.about(row("b").case, reason="no GPU")
PROFILES = ({"case": "a", "why": ["old"]}, {"case": "b", "why": ["other"]}, {"case": "a", "why": ["new"]})


@pytest.mark.parametrize(
    ("report", "gap"),
    [
        (GOOD, ""),
        (replace(GOOD, complete=False), "the run did not come to its end"),
        (type(GOOD)({}, {}), "the run did not come to its end"),
        (replace(GOOD, due=("a",)), "it has a result of b, which was not due"),
        (replace(GOOD, due=("a", "b", "c")), "c was due and has no results"),
        (replace(GOOD, skips=(SKIP,)), "b was due and has 2 results"),
        (replace(GOOD, verdicts=(row("a"),), skips=(SKIP,)), ""),
        (replace(GOOD, verdicts=(row("a"), row("b", Outcome.MISSING))), ""),
        (replace(GOOD, verdicts=(row("a"), row("b", metric="flops"))), "b was due and has no results"),
    ],
)
def test_each_case_that_was_due_needs_one_result(report, gap):
    assert report.gap == gap


def test_the_latest_profile_of_a_case_explains_it():
    report = replace(GOOD, profiles=PROFILES)
    assert (report.why("a"), report.why("b"), report.why("c")) == (["new"], ["other"], [])
