"""The measured rate of false alarms is that of this policy's races, or none."""

from tfbench.doctor.calibration import CalibrationTrial, Journal, measured_false_alarms


def trial(outcome, slowdown=0.0):
    return CalibrationTrial("race", "quick", "matmul", slowdown, outcome, 1.0, 3, 1, (), ())


def test_it_counts_changes_among_races_of_unchanged_code(tmp_path):
    for one in (trial("regressed"), trial("unchanged"), trial("unchanged"), trial("regressed", 0.05)):
        Journal(tmp_path / "quick.jsonl").append(one)
    found = measured_false_alarms(tmp_path, "quick")
    assert (found.hits, found.trials) == (1, 3)
    assert measured_false_alarms(tmp_path, "standard") is None
    assert measured_false_alarms(tmp_path, "../quick") is None


def test_a_damaged_journal_is_no_rate(tmp_path):
    (tmp_path / "quick.jsonl").write_text("?\n")
    assert measured_false_alarms(tmp_path, "quick") is None
