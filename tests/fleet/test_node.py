"""A machine that is not the planned one is refused before anything is measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.fakes.fleet_job import plan
from tfbench.errors import NodeError, SideError, UsageError
from tfbench.fleet.jobs import FleetFolder, check, pinned, sides_of


@pytest.fixture
def job(tmp_path):
    plan(tmp_path / "fleet", 1)
    found = FleetFolder(tmp_path / "fleet").job(1)
    return replace(found, sides={**found.sides, "contender": sides_of("self", tmp_path)["contender"]})


def contender(job, **changes):
    return replace(job, sides={**job.sides, "contender": {**job.sides["contender"], **changes}})


def test_the_planning_machine_is_fit(job, tmp_path):
    check(job, tmp_path)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"python": "3.8.1"}, r"it has Python \d\.\d+, and the job was planned for 3.8"),
        ({"packages": {"tensorflow": "1.15.0"}}, "and the job was planned for 1.15.0; install 1.15.0, or plan there"),
        ({"tree": "a" * 40}, "is not the planned code .*: check it out, or plan again"),
    ],
)
def test_other_versions_and_other_code(job, tmp_path, changes, text):
    with pytest.raises(NodeError, match=text):
        check(contender(job, **changes), tmp_path)


def test_other_thresholds(job, tmp_path):
    with pytest.raises(NodeError, match=r"other thresholds than the job \(alpha\); install the tfbench that planned"):
        check(replace(job, policy={**job.policy, "alpha": 0.5}), tmp_path)
    with pytest.raises(NodeError, match="no policy named 'None'"):
        check(replace(job, policy={}), tmp_path)


def test_what_options_of_the_project_change_is_no_other_threshold(job, tmp_path):
    check(replace(job, policy={**job.policy, "statistic": "mean", "device_gated": True}), tmp_path)


def test_a_root_that_is_not_shared(job, tmp_path):
    with pytest.raises(NodeError, match=r"does not exist on .*: share it with this machine, or give --root"):
        check(job, tmp_path / "nothing")


def test_specifications_mean_the_same_everywhere(tmp_path):
    assert pinned("self", tmp_path) == "self"
    assert (
        pinned("2.20.0+env:A=1", tmp_path)
        == pinned("tensorflow==2.20.0+env:A=1", tmp_path)
        == "tensorflow==2.20.0+env:A=1"
    )
    with pytest.raises(UsageError, match="other machines have no such path"):
        pinned("python:/usr/bin/python3", tmp_path)
    with pytest.raises(UsageError, match="give --against SPEC"):
        pinned("", tmp_path)
    with pytest.raises(SideError, match="git:HEAD"):
        pinned("git:HEAD", tmp_path)
