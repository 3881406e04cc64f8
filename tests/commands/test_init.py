"""The first files of a project, and projects that have some of them."""

import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from tfbench import cli
from tfbench.commands.init import BENCHMARKS, INI, WORKFLOW

ROOT = Path(__file__).resolve().parents[2]


def init(root, capsys):
    assert cli.main(["init", str(root)]) == 0
    return capsys.readouterr().out


def test_an_empty_project_gets_everything_and_keeps_what_it_has(tmp_path, capsys):
    out = init(tmp_path, capsys)
    texts = {name: (tmp_path / name).read_text() for name in (BENCHMARKS, INI, WORKFLOW)}
    assert all(f"written: {name}\n" in out for name in texts)
    (tmp_path / WORKFLOW).write_text("mine")
    out = init(tmp_path, capsys)
    assert "written: " not in out
    assert f"present: {WORKFLOW}" in out
    assert (tmp_path / WORKFLOW).read_text() == "mine"


SETTINGS = {
    "pytest.ini": ("[pytest]\n", True),
    "setup.cfg": ("[tool:pytest]\n", True),
    "pytest.toml": ('[pytest]\npythonpath = ["."]\n', False),
    "pyproject.toml": ('[tool.pytest.ini_options]\npythonpath = ["."]\n', False),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_of_pytest_are_not_touched_and_named_where_they_do_not_import_the_project(tmp_path, capsys, name):
    text, lacking = SETTINGS[name]
    (tmp_path / name).write_text(text)
    assert (f'to do: {name}: add pythonpath = "."' in init(tmp_path, capsys)) == lacking
    assert (tmp_path / name).read_text() == text
    assert name == INI or not (tmp_path / INI).exists()


def test_a_project_that_only_requires_pytest_gets_its_settings(tmp_path, capsys):
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "mine"\ndependencies = ["pytest"]\n')
    assert f"written: {INI}\n" in init(tmp_path, capsys)


def test_benchmarks_of_the_project_stay(tmp_path, capsys):
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "test_mine.py").write_text("")
    init(tmp_path, capsys)
    assert not (tmp_path / BENCHMARKS).exists()


def test_odd_places_are_one_line(tmp_path, capsys):
    (tmp_path / "benchmarks").write_text("")
    assert cli.main(["init", str(tmp_path)]) == 2
    assert "is a file" in capsys.readouterr().err
    assert cli.main(["init", str(tmp_path / "nowhere")]) == 2
    assert "is no folder" in capsys.readouterr().err


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


NO_SOURCE, GIT = "git+https://HOST/OWNER/REPOSITORY@TAG", {"vcs": "git", "commit_id": "abc"}


@pytest.mark.parametrize(
    ("content", "source"),
    [
        (None, NO_SOURCE),
        ({"url": "file:///home/me/t", "dir_info": {}}, NO_SOURCE),
        ({"url": 'https://x.org/"$(rm)', "vcs_info": GIT}, NO_SOURCE),
        ({"url": "https://x.org/t.git", "vcs_info": GIT}, "git+https://x.org/t.git@abc"),
    ],
)
def test_the_workflow_installs_from_an_address_and_never_by_name_from_an_index(
    tmp_path, monkeypatch, capsys, content, source
):
    text = None if content is None else json.dumps(content)

    def distribution(name):
        if name != "pytest-tfbench":
            raise metadata.PackageNotFoundError(name)
        return SimpleNamespace(read_text=lambda file: text)

    monkeypatch.setattr(metadata, "distribution", distribution)
    out = init(tmp_path, capsys)
    written = (tmp_path / WORKFLOW).read_text()
    assert "install --quiet tensorflow" in written
    assert f'[versions] @ {source}"\n' in written
    assert not re.search(r"pip install[^\n]*\btfbench\b(?!\[versions\] @ git\+)", written)
    assert ("to do: " in out) is ("HOST" in source)


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [("requirements.txt", "numpy\n", "-r requirements.txt"), ("pyproject.toml", "[project]\n", "-e . tensorflow")],
)
def test_the_workflow_installs_the_project(tmp_path, capsys, name, text, wanted):
    (tmp_path / name).write_text(text)
    init(tmp_path, capsys)
    assert f"install --quiet {wanted} " in (tmp_path / WORKFLOW).read_text()
