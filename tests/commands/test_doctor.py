"""``tfbench doctor``: its options, and ``--envs`` on a folder of its own."""

import os
from types import SimpleNamespace

import pytest

from tfbench.cli import main
from tfbench.commands import doctor
from tfbench.sides.environments import Environments


@pytest.mark.parametrize(
    ("words", "missing"), [("--prune 3", "envs"), ("--device gpu:1", "gpu"), ("--record r.json --envs", "gpu")]
)
def test_an_option_that_would_have_no_effect_is_refused(capsys, words, missing):
    assert main(["doctor", *words.split()]) == 2
    assert f"has no effect without --{missing}; add it, or leave --" in capsys.readouterr().err


def test_the_gpus_are_checked_on_the_processors_that_are_asked_for(monkeypatch):
    asked = []
    monkeypatch.setattr(doctor, "has_driver", lambda: True)
    monkeypatch.setattr(doctor, "GpuSession", lambda *words, **more: SimpleNamespace(notes=[], close=lambda: None))
    monkeypatch.setattr(doctor.GpuCheck, "__init__", lambda self, session, where, policy: asked.append(where.every))
    monkeypatch.setattr(doctor.GpuCheck, "findings", lambda self, tell: [])
    monkeypatch.setattr(doctor.GpuCheck, "close", lambda self: None)
    first = doctor.available_cpus()[0]
    assert main(["doctor", "--gpu", "--cpus", str(first)]) == 0
    assert asked == [(first,)]


@pytest.mark.slow
def test_environments_are_listed_and_pruned(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(doctor, "kept", lambda: tmp_path)
    assert main(["doctor", "--envs"]) == 0
    assert f"no environments in {tmp_path}" in capsys.readouterr().out
    with Environments(tmp_path) as ours:
        made = ours.get(["iniconfig==2.0.0"])
    assert main(["doctor", "--envs"]) == 0
    reported = capsys.readouterr().out
    assert "iniconfig==2.0.0" in reported
    assert "today" in reported
    assert main(["doctor", "--envs", "--prune", "30"]) == 0
    assert "0 removed, 0 B freed; 1 left" in capsys.readouterr().out
    os.utime(made.folder / "tfbench.json", (0, 0))
    assert main(["doctor", "--envs", "--prune", "30"]) == 0
    assert "1 removed" in capsys.readouterr().out
    assert not made.folder.exists()
