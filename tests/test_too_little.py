"""Ways of measuring too little: none of them passes the gate. Each is held by the exit code of ``tfbench gate``."""

import json
from dataclasses import replace

import pytest

from tests.fakes.report import complete, row
from tfbench import cli
from tfbench.model import Outcome, Ratio, Reason, Skip
from tfbench.report import json_format

NAMES = [f"b/test_x.py::test_{letter}" for letter in "abcd"]
RATIO = Ratio(1.0, 0.99, 1.01, 0.99)
GOOD = complete([row(name, ratio=RATIO) for name in NAMES])
FIRST, *OTHERS = GOOD.verdicts
SHARD = {"index": 1, "of": 2, "suite": "0" * 64, "suite_cases": 8, "cases": NAMES}


def with_first(*rows, **changes):
    """Return the good report with other rows for its first case."""
    return replace(GOOD, verdicts=(*rows, *OTHERS), **changes)


def first(outcome, **more):
    return with_first(row(NAMES[0], outcome, **more))


def every(outcome):
    return complete([row(name, outcome) for name in NAMES])


def metric(name, outcome):
    return replace(GOOD, verdicts=(*GOOD.verdicts, row(NAMES[0], outcome, metric=name)))


def mostly(count, outcome):
    rows = [row(f"b/test_x.py::test_{number}", outcome) for number in range(count)]
    return complete([FIRST, *rows])


def skipping(count):
    return complete(
        [FIRST], [Skip.about(row(f"b/test_x.py::test_{number}").case, reason="no GPU") for number in range(count)]
    )


# Way -> report, exit code
WAYS = {
    # The run did not come to its end
    "killed before its end": (replace(GOOD, complete=False), 5),
    "written before the first case": (replace(every("error"), complete=False), 5),
    "written before the collection": (complete(complete=False), 5),
    "interrupted": (replace(GOOD, interrupted=True), 5),
    "interrupted without a row": (complete(interrupted=True), 5),
    "interrupted with open rows": (replace(every("inconclusive"), interrupted=True), 5),
    # Cases without a row
    "one case due without a row": (replace(GOOD, verdicts=tuple(OTHERS)), 5),
    "all cases due without rows": (replace(GOOD, verdicts=()), 5),
    "a case due with other metrics only": (with_first(row(NAMES[0], metric="graph_ops")), 5),
    "a case due with a first call only": (with_first(row(NAMES[0], metric="first_call")), 5),
    "a case due with a contract only": (with_first(row(NAMES[0], metric="contract:faster_than")), 5),
    "a case due that is missing": (first("missing"), 4),
    "a missing case that was not due": (replace(GOOD, verdicts=(*OTHERS, row(NAMES[0], "missing")), due=tuple(NAMES[1:])), 5),
    "a case due and skipped and measured": (replace(GOOD, skips=(Skip.about(FIRST.case, reason="no"),)), 5),
    "a case due and skipped twice": (replace(GOOD, verdicts=tuple(OTHERS), skips=(Skip.about(FIRST.case, reason="a"),) * 2), 5),
    "a result of a case that was not due": (replace(GOOD, due=tuple(NAMES[1:])), 5),
    "a skip of a case that was not due": (replace(GOOD, skips=(Skip.about(row("b/t.py::x").case, reason="no"),)), 5),
    "no case due": (complete(), 4),
    "a row under another name than the case due": (with_first(row("b/test_x.py::test_renamed")), 5),
    "one shard alone": (replace(GOOD, shard=SHARD), 5),
    "one shard alone that did not end": (replace(GOOD, shard=SHARD, complete=False), 5),
    # One case that is slower, or was not measured
    "a case that regressed": (first("regressed"), 1),
    "a benchmark that broke": (first("error"), 5),
    "a benchmark that was not measured": (first("error", text="the run ended before"), 5),
    "a file that could not be imported": (complete([*GOOD.verdicts, row("b/test_y.py", "error")]), 5),
    "a case that cannot be compared": (first("incomparable"), 4),
    "a case that is not decided": (first("inconclusive"), 3),
    "a case that is gone": (complete([*GOOD.verdicts, row("b/test_x.py::test_gone", "missing")]), 4),
    # Nothing compared
    "all new": (every("new"), 4),
    "all skipped": (complete([], [Skip.about(one.case, reason="no GPU") for one in GOOD.verdicts]), 4),
    "all missing": (every("missing"), 4),
    "all incomparable": (every("incomparable"), 4),
    "all inconclusive": (every("inconclusive"), 3),
    "all errors": (every("error"), 5),
    "new and skipped": (complete([row(NAMES[0], "new")], [Skip.about(row(NAMES[1]).case, reason="no GPU")]), 4),
    "times new and only other metrics compared": (
        complete([row(NAMES[0], "new"), row(NAMES[0], metric="first_call"), row(NAMES[0], metric="graph_ops")]), 4,
    ),
    "times new and only contracts held": (
        complete([row(NAMES[0], "new"), row(NAMES[0], metric="contract:expect_ops")]), 4,
    ),
    # Most of it not compared
    "one compared, three new": (mostly(3, "new"), 4),
    "one compared, ninety-nine new": (mostly(99, "new"), 4),
    "one compared, three skipped": (skipping(3), 4),
    "one compared, ninety-nine skipped": (skipping(99), 4),
    "one compared, one new, one skipped": (
        complete([FIRST, row(NAMES[1], "new")], [Skip.about(row(NAMES[2]).case, reason="no GPU")]), 4,
    ),
    # Another metric is not known any more
    **{f"{name} can no longer be read": (metric(name, "missing"), 4)
       for name in ("graph_ops", "retraces", "parity", "peak_device_memory", "artifact_bytes")},
    **{f"{name} failed": (metric(name, "error"), 5)
       for name in ("probes", "contracts", "device", "profile", "first_call", "contract:faster_than")},
    **{f"{name} cannot be compared": (metric(name, "incomparable"), 4)
       for name in ("graph_ops", "first_call", "peak_host_memory")},
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_a_report_with_too_little_does_not_pass(tmp_path, way):
    report, code = WAYS[way]
    path = tmp_path / "r.json"
    path.write_text(json_format.render(report))
    assert cli.main(["gate", str(path)]) == code


@pytest.mark.parametrize("field", ["verdicts", "interrupted", "complete", "due"])
def test_a_report_without_a_field_does_not_pass(tmp_path, field):
    content = json.loads(json_format.render(GOOD))
    del content[field]
    path = tmp_path / "r.json"
    path.write_text(json.dumps(content))
    assert cli.main(["gate", str(path)]) == 5


def test_the_good_report_passes(tmp_path):
    path = tmp_path / "r.json"
    path.write_text(json_format.render(GOOD))
    assert cli.main(["gate", str(path)]) == 0
    improved = with_first(FIRST.changed(outcome=Outcome.IMPROVED, reason=Reason("faster", "5% faster")))
    path.write_text(json_format.render(improved))
    assert cli.main(["gate", str(path)]) == 0
