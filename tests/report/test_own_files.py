"""Changes of the gate itself are recognised by their paths, and by what the gate's files in the trusted tree name."""

from pathlib import Path

import pytest

from tfbench.report.artifact import own_files

OWN = [
    ".github/workflows/gate.yml", ".github/tfbench-accepted.toml", "action.yml", "conftest.py", "a/b/conftest.py",
    "pytest.ini", "pyproject.toml", "Makefile", "tfbench/ruling.py", "ci/tfbench-accepted.toml", "x/evil.pth",
    ".pytest.toml", "sub/.pytest.toml", ".tfbench/baselines/main.json", "sub/.tfbench/baselines/main.json",
    "uv.lock", "poetry.lock", "pylock.toml", "pylock.gate.toml", "constraints.txt", "ci/constraints-gpu.txt",
    "requirements-dev.txt", "requirements/gate.txt", "requirements.in", "environment.yml", "Pipfile", ".gitmodules",
    ".python-version", "noxfile.py", "uv.toml", "fake.egg-info/entry_points.txt", "pytest.py", "pytest/__init__.py",
]  # fmt: skip


@pytest.mark.parametrize("name", OWN)
def test_a_file_of_the_gate_is_flagged(name, tmp_path):
    assert own_files([name, "README.md"], tmp_path) == [name]


@pytest.mark.parametrize(
    "name",
    ["README.md", "model/layers.py", "benchmarks/test_x.py", "docs/.github.md", "", "action.yml.md", "docs/locks.md"],
)
def test_another_file_is_not(name, tmp_path):
    assert own_files([name], tmp_path) == []


WORKFLOW = """
on: {push: {paths-ignore: [README.md]}}
jobs:
  gate:
    steps:
      - uses: ./ci/action
        with:
          accepted: ci/known.toml
      - run: python ./tools/measure.py -r ci/pins.txt
        env: {PYTEST_PLUGINS: "ours.env,ours.other"}
"""


@pytest.mark.parametrize(
    ("file", "text", "name"),
    [
        (".github/workflows/gate.yml", WORKFLOW, "ci/known.toml"),
        (".github/workflows/gate.yaml", WORKFLOW, "ci/pins.txt"),
        (".github/workflows/gate.yml", WORKFLOW, "tools/measure.py"),
        (".github/workflows/gate.yml", WORKFLOW, "ci/action/action.yml"),
        (".github/workflows/gate.yml", WORKFLOW, "ours/other.py"),
        ("pytest.ini", "[pytest]\naddopts = -q -p tools.plugin\n", "tools/plugin.py"),
        ("pytest.ini", "[pytest]\naddopts = -ptools.plugin\n", "tools/plugin/__init__.py"),
        (".pytest.toml", '[pytest]\naddopts = ["-p", "plugin"]\npythonpath = ["src"]\n', "src/plugin.py"),
        ("pyproject.toml", "[tool.pytest.ini_options]\naddopts = '-p tools.plugin'\n", "tools/plugin.py"),
        (
            "pyproject.toml",
            '[project.entry-points.pytest11]\nours = "src_ours.hooks:Plugin"\n',
            "lib/src_ours/hooks.py",
        ),
        ("setup.cfg", "[options.entry_points]\npytest11 =\n    ours = ours.hooks\n", "ours/hooks.py"),
        ("setup.py", "setup(entry_points={'pytest11': ['ours = ours.hooks']})\n", "ours/hooks.py"),
        ("conftest.py", "pytest_plugins = [\n    'ours.first',\n    'ours.second',\n]\n", "ours/second.py"),
        ("benchmarks/conftest.py", "pytest_plugins: str = 'ours.first'\n", "ours/first.py"),
    ],
)
def test_a_file_that_the_gate_names_is_flagged(file, text, name, tmp_path):
    place = tmp_path / file
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    others = ["README.md", "benchmarks/test_x.py", "model/layers.py", "tests/plugins.py"]
    assert own_files([name, *others], tmp_path) == [name]


def test_a_file_that_cannot_be_read_does_not_stop_the_comment(tmp_path):
    (tmp_path / "pytest.ini").write_bytes(b"\xff\xfe-p \x00")
    (tmp_path / "conftest.py").symlink_to(tmp_path / "nowhere")
    assert own_files(["README.md", "conftest.py"], tmp_path) == ["conftest.py"]


def test_few_files_of_this_project_are_the_gate(tmp_path):
    root = Path(__file__).resolve().parents[2]
    names = [
        str(file.relative_to(root))
        for folder in ("docs", "tests", "benchmarks")
        for file in (root / folder).rglob("*.*")
    ]
    found = [name for name in own_files(names, root) if not name.endswith("conftest.py")]
    assert len(found) < 10, found
