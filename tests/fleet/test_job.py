"""The file of a job: read strictly, refused when edited, and matched with its report."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.fakes.fleet_job import plan, report_of
from tfbench.errors import JobError
from tfbench.fleet.jobs import FleetFolder, check_report, load, parse_job


@pytest.fixture
def folder(tmp_path):
    plan(tmp_path / "fleet", 3, cases=2)
    return FleetFolder(tmp_path / "fleet")


@pytest.fixture
def job(folder):
    return folder.job(2)


def edited(folder, **changes):
    path = folder.job_file(2)
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return path


@pytest.mark.parametrize(
    "changes", [{"seed": 1}, {"cases": ["benchmarks/test_a.py::test_9"]}, {"device": "gpu"}, {"extra": 1}]
)
def test_an_edited_one_is_refused(folder, changes):
    with pytest.raises(JobError, match="was edited: its content does not match its digest"):
        load(edited(folder, **changes))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"schema": "tfbench-job/0"}, "got 'tfbench-job/0': another version of tfbench wrote it; plan again"),
        ({"schema": "another"}, "is not a job of the schema"),
        ({"cases": []}, "at cases"),
        ({"scale": "vast"}, "at scale"),
    ],
)
def test_a_wrong_one_says_what_is_wrong(folder, changes, text):
    with pytest.raises(JobError, match=text):
        load(edited(folder, **changes))


def test_one_with_a_digest_of_its_own_is_still_read_strictly(job):
    with pytest.raises(JobError, match="no name of a benchmark"):  # but an option of pytest
        parse_job(replace(job, cases=("--rootdir=/", "b.py::test_a")).render(), "it")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"complete": False}, "not complete"),
        ({"policy": {"name": "quick"}}, "other thresholds"),
        ({"sides": {"baseline": {"spec": "git:v1"}}}, "raced git:v1"),
        ({"shard": None}, "another job"),
        ({"verdicts": ()}, "not complete"),
        ({"seed": 2**40}, "has another seed than its job"),
        ({"interrupted": True}, "is of a run that was interrupted"),
    ],
)
def test_an_unfit_report_is_refused(job, changes, text):
    check_report(job, report_of(job), "it")
    with pytest.raises(JobError, match=text):
        check_report(job, replace(report_of(job), **changes), "it")
