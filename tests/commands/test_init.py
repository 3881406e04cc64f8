"""The first files of a project, and projects that have some of them."""

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from tfbench import cli
from tfbench.commands.init import BENCHMARKS, INI, WORKFLOW, plan
from tfbench.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]


def install_from(monkeypatch, content):
    """Have this project installed from the address that the content of ``direct_url.json`` names."""
    text = None if content is None else json.dumps(content)
    found = SimpleNamespace(read_text=lambda file: text)
    its_own = SimpleNamespace(distribution=lambda name: found, PackageNotFoundError=metadata.PackageNotFoundError)
    monkeypatch.setattr("tfbench.commands.init.metadata", its_own)


@pytest.fixture(autouse=True)
def installed_from_a_repository(monkeypatch):
    install_from(monkeypatch, {"url": "https://x.org/t.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}})


def test_an_empty_project_gets_everything_and_then_has_it_all(tmp_path, capsys):
    assert cli.main(["init", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    for name in (BENCHMARKS, INI, WORKFLOW):
        assert f"written: {name}\n" in out
        assert (tmp_path / name).is_file()
    texts = {name: (tmp_path / name).read_text() for name in (BENCHMARKS, INI, WORKFLOW)}
    assert cli.main(["init", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "the project has it all: no file was written" in out
    assert "written: " not in out.replace("was written", "")
    assert texts == {name: (tmp_path / name).read_text() for name in texts}


@pytest.mark.parametrize("committed", [False, True])
def test_the_race_against_a_commit_needs_a_commit(tmp_path, capsys, committed):
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    if committed:
        author = "-c", "user.name=a", "-c", "user.email=a@example.org"
        subprocess.run(["git", *author, "commit", "-qm", "x", "--allow-empty"], cwd=tmp_path, check=True)
    assert cli.main(["init", str(tmp_path)]) == 0
    last = "race the working tree against the last commit" + ", once there is one" * (not committed)
    assert capsys.readouterr().out.endswith(f"{last}\n")


@pytest.mark.parametrize(
    ("name", "text", "advice"),
    [
        ("pytest.ini", "[pytest]\n", "pytest.ini: add `pythonpath = . src` to [pytest]"),
        ("tox.ini", "[pytest]\naddopts = -n 2\n", "tox.ini: add `pythonpath = . src` to [pytest]"),
        ("setup.cfg", "[tool:pytest]\n", "setup.cfg: add `pythonpath = . src` to [tool:pytest]"),
        (
            "pyproject.toml",
            "[tool.pytest.ini_options]\n",
            'pyproject.toml: add `pythonpath = [".", "src"]` to [tool.pytest.ini_options]',
        ),
        pytest.param(
            "pyproject.toml",
            '[tool.pytest]\ntestpaths = ["tests"]\n',
            'pyproject.toml: add `pythonpath = [".", "src"]` to [tool.pytest],',
            marks=pytest.mark.skipif(pytest.version_tuple < (9,), reason="pytest reads it from 9.0 on"),
        ),
    ],
)
def test_settings_of_pytest_are_not_touched(tmp_path, name, text, advice):
    (tmp_path / "src").mkdir()
    (tmp_path / name).write_text(text)
    found = plan(tmp_path, "3.11")
    assert INI not in found.files
    assert found.advice[0].startswith(advice)
    assert len(found.advice) == 1 + ("-n 2" in text)


def test_settings_that_have_it_need_nothing(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.pytest.ini_options]\npythonpath = ["lib"]\n')
    assert not plan(tmp_path, "3.11").advice


def test_a_file_of_settings_without_pytest_does_not_count(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    found = plan(tmp_path, "3.11")
    assert INI in found.files
    assert "-e . tensorflow" in found.files[WORKFLOW]


def test_settings_of_the_repository_above_count(tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    (tmp_path / "part").mkdir()
    assert INI not in plan(tmp_path / "part", "3.11").files


@pytest.mark.parametrize(("name", "text"), [("pyproject.toml", "[tool"), ("setup.cfg", "[pytest]\n")])
def test_settings_that_pytest_cannot_read_are_one_line(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match="pytest cannot read the settings") as refused:
        plan(tmp_path, "3.11")
    assert "\n" not in str(refused.value)


def test_benchmarks_of_the_project_stay(tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\ntfbench_paths = perf\n")
    assert "perf/test_first.py" in plan(tmp_path, "3.11").files
    (tmp_path / "perf").mkdir()
    (tmp_path / "perf" / "test_mine.py").write_text("")
    found = plan(tmp_path, "3.11")
    assert set(found.files) == {WORKFLOW}
    assert "benchmarks in perf" in found.present


def test_odd_places_are_one_line(tmp_path, capsys):
    (tmp_path / "benchmarks").write_text("")
    assert cli.main(["init", str(tmp_path)]) == 2
    assert "is a file" in capsys.readouterr().err
    assert cli.main(["init", str(tmp_path / "nowhere")]) == 2
    assert "is no folder" in capsys.readouterr().err


def test_a_file_that_appears_meanwhile_is_kept(tmp_path, monkeypatch, capsys):
    found = plan(tmp_path, "3.11")
    monkeypatch.setattr("tfbench.commands.init.plan", lambda *arguments: found)
    (tmp_path / INI).write_text("[pytest]\n")
    assert cli.main(["init", str(tmp_path)]) == 0
    assert f"not written: {INI} exists" in capsys.readouterr().out
    assert (tmp_path / INI).read_text() == "[pytest]\n"
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".half-")]


def test_the_workflow_pins_the_same_actions_and_is_valid(tmp_path):
    cli.main(["init", str(tmp_path)])
    file = tmp_path / WORKFLOW
    steps = yaml.safe_load(file.read_text())["jobs"]["gate"]["steps"]
    assert steps[3]["run"].startswith("tfbench ci")
    used = [step["uses"] for step in steps if "uses" in step]
    own = (ROOT / ".github/workflows/gate.yml").read_text()
    assert used
    assert all(one in own for one in used)
    program = Path(sys.executable).with_name
    check = [str(program("check-jsonschema")), "--builtin-schema", "vendor.github-workflows", str(file)]
    assert subprocess.run(check, capture_output=True, check=False).returncode == 0
    zizmor = [str(program("zizmor")), "--offline", "--min-severity=medium", str(file)]
    done = subprocess.run(zizmor, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


UNKNOWN = "git+https://HOST/OWNER/REPOSITORY@TAG"


@pytest.mark.parametrize(
    ("content", "installed", "advice"),
    [
        (
            None,
            '"pytest-tfbench[versions] @ git+https://HOST/OWNER/REPOSITORY@TAG"',
            [f"{WORKFLOW}: put the address of pytest-tfbench in place of {UNKNOWN}; yours is from an unknown place"],
        ),
        (
            {"url": "https://x.org/t.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            '"pytest-tfbench[versions] @ git+https://x.org/t.git@abc"',
            [],
        ),
        (
            {"url": "file:///home/me/t", "dir_info": {}},
            '"pytest-tfbench[versions] @ git+https://HOST/OWNER/REPOSITORY@TAG"',
            [f"{WORKFLOW}: put the address of pytest-tfbench in place of {UNKNOWN}; yours is from file:///home/me/t"],
        ),
    ],
)
def test_the_workflow_installs_what_is_installed_here(tmp_path, monkeypatch, content, installed, advice):
    install_from(monkeypatch, content)
    found = plan(tmp_path, "3.12")
    assert f"install --quiet tensorflow {installed}\n" in found.files[WORKFLOW]
    assert found.advice == advice


def initialised(root, capsys, settings):
    """Returns what init prints in a project with these settings of pytest, and the steps of the gate's job."""
    (root / "pytest.ini").write_text(f"[pytest]\npythonpath = .\n{settings}\n")
    assert cli.main(["init", str(root)]) == 0
    return capsys.readouterr().out, yaml.safe_load((root / WORKFLOW).read_text())["jobs"]["gate"]["steps"]


@pytest.mark.parametrize("setting", ["timeout = 60", "addopts = -q --timeout=60", "addopts = --timeout 60"])
def test_a_timeout_of_tests_does_not_end_the_races_of_what_is_written(tmp_path, capsys, setting):
    out, steps = initialised(tmp_path, capsys, setting)
    assert "to do: pytest.ini: the timeout is one for tests, and races take longer; run them with --timeout=0" in out
    assert "  pytest --benchmark --timeout=0 --against git:HEAD " in out
    assert steps[2]["run"].startswith("python -m pip install --quiet tensorflow pytest-timeout ")
    assert steps[3]["run"].startswith("tfbench ci --arguments=--timeout=0")


@pytest.mark.parametrize("number", ["-n auto", "-nauto", "-n4", "--numprocesses=2", "-q --numprocesses logical"])
def test_what_is_written_runs_beside_the_plugins_of_the_tests(tmp_path, capsys, number):
    settings = f"timeout = 60\naddopts = --cov=mine --cov-report term {number}"
    out, steps = initialised(tmp_path, capsys, settings)
    assert "to do: pytest.ini: addopts has -n, and benchmarks need one process; run them with -n0" in out
    assert "  pytest --benchmark -n0 --timeout=0 --no-cov --against git:HEAD " in out
    assert " tensorflow pytest-xdist pytest-timeout pytest-cov " in steps[2]["run"]
    assert steps[3]["run"].startswith(r"tfbench ci --arguments=$'-n0\n--timeout=0\n--no-cov'")


@pytest.mark.parametrize("options", ["--timeout-method=thread", "-n 0", "-n0 --cov-report term", "--no-cov", "--new"])
def test_other_settings_of_these_plugins_change_nothing(tmp_path, options):
    (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = .\naddopts = {options}\n")
    found = plan(tmp_path, "3.12")
    assert (found.options, found.advice) == ("", [])
    assert "--arguments" not in found.files[WORKFLOW]


def test_tests_of_pytest_benchmark_in_other_folders_are_among_the_benchmarks(tmp_path):
    for name in ("tests/perf/test_a.py", "tests/perf/deep/b_test.py", "test_c.py", "my env/test_d.py",
                 "benchmarks/test_e.py", "venv/lib/test_f.py", ".tox/test_g.py"):  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("class TestX:\n    def test_x(self, benchmark): ...\n")
    (tmp_path / "venv/pyvenv.cfg").touch()
    (tmp_path / "tests/test_usual.py").write_text("def test_of_a_benchmark(tmp_path): ...\n")
    (tmp_path / "tests/test_bytes.py").write_bytes(b"\xff")
    paths = "benchmarks 'my env' test_c.py tests/perf"
    assert f"tfbench_paths = {paths}\n" in plan(tmp_path, "3.12").files[INI]
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    (advice,) = plan(tmp_path, "3.12").advice
    assert advice.startswith(
        f"pytest.ini: add `tfbench_paths = {paths}` to [pytest], so that the tests of pytest-bench"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\ntfbench_paths = benchmarks\n")
    assert not plan(tmp_path, "3.12").advice
