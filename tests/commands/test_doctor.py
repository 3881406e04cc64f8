"""``tfbench doctor --envs`` on a folder of its own."""

import os

import pytest

from tfbench.cli import main
from tfbench.commands import doctor
from tfbench.sides.environments import Environments


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
