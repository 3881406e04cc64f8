"""Cutting a suite into jobs by cost."""

from __future__ import annotations

import json

import pytest

from tests.fakes.fleet_job import plan
from tfbench.errors import JobError, UsageError
from tfbench.fleet.jobs import FleetFolder, costs, cut
from tfbench.model import Case


def cases(count, **more):
    return [Case(f"t.py::test_{n}[a={n % 2}]", "w", f"t.py::test_{n}", **more) for n in range(count)]


def test_jobs_take_at_most_their_time():
    suite = cases(10)
    jobs = cut(suite, dict.fromkeys((one.name for one in suite), 4.0), 10.0)
    assert [len(names) for names, _ in jobs] == [2, 2, 2, 2, 2]
    assert [seconds for _, seconds in jobs] == [8.0] * 5
    assert [name for names, _ in jobs for name in names] == [one.name for one in suite]


def test_variants_that_race_each_other_stay_together_whatever_they_cost():
    suite = [Case(f"t.py::test_a[n={n}]", "w", "t.py::test_a") for n in range(5)]
    assert len(cut(suite, dict.fromkeys((one.name for one in suite), 9.0), 10.0)) == 1


def test_start_up_environments_are_not_mixed_more_than_necessary():
    suite = [Case(f"t.py::test_{n}", "w", f"g{n}", env=(("A", str(n % 2)),)) for n in range(6)]
    jobs = cut(suite, dict.fromkeys((one.name for one in suite), 1.0), 3.0)
    assert [names for names, _ in jobs] == [tuple(f"t.py::test_{n}" for n in part) for part in ((0, 2, 4), (1, 3, 5))]


def test_unknown_costs_are_estimated_from_other_cases():
    suite = [Case(f"t.py::test_a[n={n}]", "w", "a") for n in range(3)] + [Case("t.py::test_b", "w", "b")]
    known = {"t.py::test_a[n=0]": 2.0, "t.py::test_a[n=1]": 4.0, "gone.py::x": 9.0}
    assert list(costs(suite, known, "quick").values()) == [2.0, 4.0, 4.0, 4.0]
    assert set(costs(suite, {}, "quick").values()) == {6.0}


def test_a_plan_is_a_folder_that_is_whole_or_not_there(tmp_path):
    made = plan(tmp_path / "fleet", 3, cases=2)
    folder = FleetFolder(tmp_path / "fleet")
    assert folder.plan() == made
    assert len({folder.job(index).session for index in (1, 2, 3)}) == 3, "a history takes two jobs for two runs"
    assert sorted(name for index in (1, 2, 3) for name in folder.job(index).cases) == sorted(
        f"benchmarks/test_a.py::test_{n}" for n in range(6)
    )
    with pytest.raises(OSError, match=r"exist|not empty"):
        plan(tmp_path / "fleet", 1)
    assert [path.name for path in tmp_path.iterdir()] == ["fleet"]


def test_what_no_machine_would_take_is_not_planned(tmp_path):
    with pytest.raises(UsageError, match=r"job 1 of this plan is not a job .* at scale, .*; give another value"):
        plan(tmp_path / "fleet", 1, scale="vast")
    assert list(tmp_path.iterdir()) == []


def test_an_edited_plan_is_refused(tmp_path):
    folder = FleetFolder(tmp_path / "fleet")
    plan(folder.path, 2)
    content = json.loads(folder.plan_file.read_text())
    for name, value in (("missing", ["b/test_x.py::test_y"]), ("root", "/"), ("digest", ""), ("more", 1)):
        folder.plan_file.write_text(json.dumps({**content, name: value}))
        with pytest.raises(JobError, match=r"plan.json was edited: its content does not match its digest; plan again"):
            folder.plan()


def test_a_folder_without_a_plan(tmp_path):
    with pytest.raises(JobError, match=r"is no folder of a fleet .* tfbench fleet plan writes one"):
        FleetFolder(tmp_path).plan()
    (tmp_path / "plan.json").write_text('{"schema": "tfbench-fleet/0"}')
    with pytest.raises(JobError, match="got 'tfbench-fleet/0': another version of tfbench wrote it"):
        FleetFolder(tmp_path).plan()
