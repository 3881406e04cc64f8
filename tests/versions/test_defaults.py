"""Defaults of two sides: which are tried, and which explains a slowdown."""

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tfbench.errors import SideError
from tfbench.model import Ratio
from tfbench.sides.spec import Side
from tfbench.versions import changes
from tfbench.versions.changes import (
    MOST_DEFAULTS,
    Candidate,
    Default,
    Defaults,
    candidates,
    defaults_of,
    search_defaults,
    set_back,
)

GOOD = {
    "--xla_cpu_use_thunk_runtime": Default("false", "bool"),
    "--xla_base_length": Default("32", "int64"),
    "--xla_gpu_a": Default("false", "bool"),
    "--xla_gone": Default("true", "bool"),
    "TF_A": Default("false"),
}
BAD = {
    "--xla_cpu_use_thunk_runtime": Default("true", "bool"),
    "--xla_base_length": Default("16", "int64"),
    "--xla_gpu_a": Default("true", "bool"),
    "--xla_new_switch": Default("true", "bool"),
    "--xla_cpu_new_off": Default("false", "bool"),
    "--xla_cpu_count": Default("32", "int32"),
    "--xla_new_text": Default("", "string"),
    "TF_A": Default("true"),
    "TF_NEW": Default("true"),
}
SIDE = Side("2.18", sys.executable, Path("/"), "2.18", env={"XLA_FLAGS": "--a=1"})


def test_changed_defaults_come_before_new_flags_and_flags_of_gpus_are_left_out():
    found = candidates(GOOD, BAD)
    assert [one.env for one in found] == [
        ("XLA_FLAGS", "--xla_cpu_use_thunk_runtime=false"),
        ("XLA_FLAGS", "--xla_base_length=32"),
        ("TF_A", "false"),
        ("XLA_FLAGS", "--xla_cpu_new_off=true"),
        ("XLA_FLAGS", "--xla_new_switch=false"),
    ]
    many = {f"--xla_{number}": Default("true", "bool") for number in range(99)}
    assert len(candidates({}, many)) == MOST_DEFAULTS
    assert candidates(GOOD, GOOD) == []
    assert (
        candidates({}, {"--xla_hlo_print_frames": Default("false", "bool"), "--xla_gpu_a": Default("true", "bool")})
        == []
    )


def test_a_default_is_set_back_beside_the_flags_of_the_side():
    candidate = candidates(GOOD, BAD)[0]
    side = set_back(SIDE, candidate)
    assert side.env["XLA_FLAGS"] == "--a=1 --xla_cpu_use_thunk_runtime=false"
    assert side.name != SIDE.name
    assert str(candidate) == "--xla_cpu_use_thunk_runtime (false before, true now), set to false"


def ratio(center):
    return Ratio(center, center / 1.02, center * 1.02, 0.95)


def test_the_search_ends_with_the_default_that_removes_the_slowdown():
    raced = []
    answers = {"a": ratio(1.98), "b": "it crashes", "c": ratio(1.3), "d": ratio(1.01), "e": ratio(1.0)}

    def race(candidate):
        raced.append(candidate.name)
        return answers[candidate.name]

    found = [Candidate(name, "off", "on", "off") for name in "abcde"]
    removals = search_defaults(ratio(2.0), found, race, lambda text: None)
    assert raced == ["a", "b", "c", "d"]
    assert [(candidate.name, round(share, 2)) for share, candidate, _ in removals] == [("d", 0.99), ("c", 0.62)]


def test_a_default_that_explains_a_case_is_tried_first_for_the_next(monkeypatch):
    def set_back_to(sides, candidate):
        raced.append(candidate.name)
        return ratio(1.0 if candidate.name == "TF_A" else 2.0)

    raced, good, bad = [], GOOD, BAD
    monkeypatch.setattr(changes, "defaults_of", lambda side: good if side.spec == "2.17" else bad)
    launcher = SimpleNamespace(environment=lambda side: {"defaults": {"oneDNN": "used"}})
    find = Defaults(launcher, None, lambda text: None)
    monkeypatch.setattr(find, "_with", set_back_to)
    sides = SimpleNamespace(side=replace(SIDE, spec="2.17")), SimpleNamespace(side=SIDE)
    (found,) = find(sides, ratio(2.0))
    assert found == (
        1.0, "default: TF_A (false before, true now), set to false removes 100% of the slowdown: ratio 1.000 (0.980 to 1.020)",
    )  # fmt: skip
    raced.clear()
    find(sides, ratio(2.0))
    assert raced == ["TF_A"]


def test_flags_are_read_from_what_a_side_prints(monkeypatch):
    printed = 'Flags:\n\t--xla_cpu_a=true\tbool\tsomething\n\t--xla_text=""\tstring\tmore\nAborted'
    monkeypatch.setattr(changes.subprocess, "run", lambda *_, **__: SimpleNamespace(stderr=printed, stdout=""))
    assert defaults_of(SIDE) == {"--xla_cpu_a": Default("true", "bool"), "--xla_text": Default("", "string")}


def test_a_side_that_prints_no_flags_is_refused(monkeypatch):
    shown = SimpleNamespace(stderr="", stdout="Segmentation fault")
    monkeypatch.setattr(changes.subprocess, "run", lambda *_, **__: shown)
    with pytest.raises(SideError, match="prints no flags of XLA: Segmentation fault"):
        defaults_of(SIDE)
