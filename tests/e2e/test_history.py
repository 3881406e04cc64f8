"""A history of real runs: an anchor that stays, runs that add themselves, and what may not be an anchor."""

import json

import pytest

STEPS = """
    def test_sum(bench):
        bench(sum, list(range(400)))
"""


def runs(folder):
    """Return the lines of each file of a history, oldest first."""
    return [[json.loads(line) for line in path.read_text().splitlines()] for path in sorted(folder.glob("*.jsonl"))]


@pytest.mark.slow
def test_runs_against_a_tag_are_followed_by_their_ratio_to_it(project, monkeypatch):
    project.write(STEPS)
    project.commit("first")
    project.git("tag", "v1.0")
    elsewhere = project.root.parent / "history of main"
    monkeypatch.setenv("TFBENCH_HISTORY", str(elsewhere))
    done = project.run("--against", "git:v1.0", "--history")
    assert done.sound, done.output
    assert "jsonl added, 1 ratio to git:v1.0" in " ".join(done.output.split())
    ((first, case),) = runs(elsewhere)
    assert first["anchor"]["label"] == "git:v1.0"
    assert first["releases"] == ["v1.0"]  # files that git does not track change no release
    assert case["case"] == "benchmarks/test_mine.py::test_sum"
    assert 0.5 < case["ratio"]["center"] < 2
    assert case["floors"]
    assert (elsewhere / ".gitignore").read_text() == "*\n"
    shown = project.tfbench("history", "test_sum", "--folder", str(elsewhere))
    assert shown.returncode == 0, shown.stderr
    assert "ratio to git:v1.0, 1 run: too few to tell" in shown.stdout
