"""Whether a report shows the whole suite, and the rates of a calibration."""

from dataclasses import replace

import pytest

from tests.fakes.report import complete, row
from tfbench.model import Outcome, Rate, RateRow, Skip
from tfbench.model.formats import plain

GOOD = complete([row("a"), row("b")])
SKIP = Skip.about(row("b").case, reason="no GPU")
PROFILES = ({"case": "a", "why": ["old"]}, {"case": "b", "why": ["other"]}, {"case": "a", "why": ["new"]})


@pytest.mark.parametrize(
    ("report", "gap"),
    [
        (GOOD, ""),
        (replace(GOOD, complete=False), "the run did not come to its end"),
        (replace(GOOD, due=("a",)), "it has a result of b, which was not due"),
        (replace(GOOD, due=("a", "b", "c")), "c was due and has no results"),
        (replace(GOOD, verdicts=(*GOOD.verdicts, row("a"))), "a was due and has 2 results"),
        (replace(GOOD, skips=(SKIP,)), "b was due and has 2 results"),
        (replace(GOOD, verdicts=(row("a"),), skips=(SKIP,)), ""),
        (
            replace(GOOD, verdicts=(*GOOD.verdicts, row("c", Outcome.MISSING))),
            "it has a result of c, which was not due",
        ),
        (replace(GOOD, verdicts=(row("a"), row("b", Outcome.MISSING))), ""),
        (replace(GOOD, verdicts=(row("a"), row("b", metric="flops"))), "b was due and has no results"),
    ],
)
def test_each_case_that_was_due_needs_one_result(report, gap):
    assert report.gap == gap


def test_a_report_is_not_complete_unless_its_run_says_so():
    assert type(GOOD)({}, {}).gap == "the run did not come to its end"


def test_the_latest_profile_of_a_case_explains_it():
    report = replace(GOOD, profiles=PROFILES)
    assert (report.why("a"), report.why("b"), report.why("c")) == (["new"], ["other"], [])


def test_a_rate_without_trials_is_zero():
    assert Rate(1, 4, (0.1, 0.5)).value == 0.25
    assert Rate(0, 0, (0.0, 1.0)).value == 0.0


def test_the_rates_of_a_calibration_are_written_with_their_intervals():
    rate = Rate(1, 4, (0.1, 0.5))
    written = {"hits": 1, "trials": 4, "interval": [0.1, 0.5]}
    row = RateRow("matmul", rate, replace(rate, hits=2), {0.05: rate}, 0.05, 3.9, {0.05: 2.5}, 6.0, rate, 0.94)
    assert plain(row) == {
        "name": "matmul",
        "false_alarms": written,
        "inconclusive": {**written, "hits": 2},
        "detected": {"0.05": written},
        "smallest_found": 0.05,
        "seconds": 3.9,
        "seconds_detected": {"0.05": 2.5},
        "launches": 6.0,
        "coverage": written,
        "nominal_coverage": 0.94,
        "tails": {},
        "seconds_tails": {},
    }
