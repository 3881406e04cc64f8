"""Beside other plugins and in odd places, tfbench works, or ends with a line that names the fix."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.e2e.project import Done, Project, environment
from tfbench import cli

pytestmark = pytest.mark.slow

BENCHMARKS = """
    import os
    from pathlib import Path

    from tests.fakes.steps import taking

    FILE = Path(__file__).parents[1] / "pace.txt"
    PACE = int(FILE.read_text()) if FILE.exists() else 1

    def test_slower(bench):
        bench(taking(bench, PACE * (1e-5 if "FAST" in os.environ else 2e-5)))
"""
ONE = "from tests.fakes.steps import taking\n\n\ndef test_fine(bench):\n    bench(taking(bench, 1e-5))\n"
SLOWER_YET = "2", "pace.txt"
"""What makes the steps of a checkout slower: a file beside the benchmark folder."""
AGAINST = ("--against", "env:FAST=1")
PLUGINS = {
    "xdist": ["-n", "0"],
    "randomly": ["-p", "randomly", "--randomly-seed=1"],
    "timeout": ["--timeout=200"],
    "pytest_cov": ["--cov=benchmarks", "--cov-report=term"],
    "rerunfailures": ["--reruns=2"],
    "sugar": ["--force-sugar"],
}
"""Name under which pytest loads a plugin -> options that make it act."""
ROOT_LACKS = ("-dac_override", "-dac_read_search")
"""Capabilities with which root may write and read everything."""


class Place(Project):
    """A project in a folder of its own, which a run can be kept from writing into."""

    def __init__(self, folder: Path, name: str = "project") -> None:
        super().__init__(folder / name)
        self._plugins = ["-p", "benchmark", "-p", "tests.fakes.cheap"]  # by the name of the entry point, loaded once
        self.around: list[str] = []
        """A command that runs the command that follows."""
        self.variables: dict[str, str] = {"HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache")}
        self.autoload = False
        """Whether pytest loads every installed plugin."""
        self.left_out: tuple[str, ...] = ()
        """Prefixes of environment variables that a run does not get."""
        self.report = folder / "report.json"
        self.write(BENCHMARKS)

    def environment(self) -> dict[str, str]:
        loading = {} if self.autoload else {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        # A checkout of these tests may lie around the temporary folder.
        given = {key: value for key, value in environment(self.root).items() if not key.startswith(self.left_out)}
        return {**given, **loading, "GIT_CEILING_DIRECTORIES": str(self.root.parent), **self.variables}

    def beside_plugins(self) -> None:
        """Start pytest anew, and without what measures these tests: pytest-cov would erase its data."""
        self.forked = False
        self.left_out = ("COVERAGE_",)

    def command(self, *options: str) -> list[str]:
        return [*self.around, *super().command(*options)]

    def gate(self) -> int:
        """Return the exit code of the gate on the last report."""
        return cli.main(["gate", str(self.report)])

    def forbid_writing(self) -> None:
        """Make the folder read-only, also for root."""
        for path in (self.root, *self.root.rglob("*")):
            path.chmod(path.stat().st_mode & ~0o222)
        if os.geteuid() == 0:
            self.around = ["setpriv", f"--bounding-set={','.join(ROOT_LACKS)}"]

    def give_away(self) -> None:
        """Give the folder to another user, without write permission for anyone else."""
        if os.geteuid() == 0:
            for path in (self.root, *self.root.rglob("*")):
                os.chown(path, 65534, 65534)
                path.chmod(path.stat().st_mode & ~0o022)
            self.around = ["setpriv", f"--bounding-set={','.join(ROOT_LACKS)}"]
        else:  # only root can give files away
            self.forbid_writing()
            self.variables["GIT_TEST_ASSUME_DIFFERENT_OWNER"] = "1"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def measured(place: Place, done: Done) -> None:
    """Check that a run found the regression, and that its gate does."""
    assert done.outcomes() == {"test_slower": "regressed"}, done.output
    assert (done.code, done.report["complete"], place.gate()) == (1, True, 1)


def refused(place: Place, done: Done, code: int, line: str) -> None:
    """Check that a run has ended with this line, measured nothing and passes no gate."""
    assert done.code == code, done.output
    assert len(re.findall(rf"(?m)^(?:ERROR: )?{line}$", done.output)) == 1, done.output
    assert "Traceback" not in done.output
    assert "INTERNALERROR" not in done.output
    assert not [row for row in done.report.get("verdicts", ()) if row["outcome"] in ("unchanged", "new", "improved")]
    assert place.gate() not in (0, 1)


# Other plugins


@pytest.mark.parametrize("plugin", PLUGINS)
def test_each_plugin_runs_beside_tfbench(place, plugin):
    place.beside_plugins()
    # Workers whose coverage is measured would refuse to time anything.
    place.write("[run]\npatch = subprocess\nparallel = true\n", ".coveragerc")
    done = place.run(*AGAINST, "-p", plugin, *PLUGINS[plugin])
    measured(place, done)
    if plugin == "rerunfailures":  # the result stays, and is not measured again until it passes
        assert "2 rerun" in done.output
        assert done.report["verdicts"][0]["launches"] <= 12


NO_PARALLEL = "pytest-xdist's -n would measure in parallel: add -n 0; --lanes N races N cases at a time"


@pytest.mark.parametrize("options", [["-n", "2"], ["-d", "--tx", "popen"]])
def test_distributing_is_refused_in_a_line(place, options):
    refused(place, place.run("-p", "xdist", *options), 4, NO_PARALLEL)


def test_a_process_for_each_test_is_refused_in_a_line(place):
    place.write("def pytest_addoption(parser):\n    parser.addoption('--forked', action='store_true')\n", "conftest.py")
    line = "each case is measured in processes of its own already; run it without --forked"
    refused(place, place.run(*AGAINST, "--forked"), 4, line)


# pytest's settings


@pytest.mark.parametrize("options", [["-p", "no:cacheprovider"], ["-p", "no:terminal"], ["--import-mode=importlib"]])
def test_options_of_pytest_are_respected(place, options):
    measured(place, place.run(*AGAINST, *options))


def test_pytest_benchmark_may_be_left_out(place):
    place._plugins = ["-p", "tests.fakes.cheap"]
    measured(place, place.run(*AGAINST))


def test_plugins_that_the_project_requires_do_not_stop_the_workers(place):
    place.write("[pytest]\nrequired_plugins = pytest-timeout>=1\n", "pytest.ini")
    place.autoload = True
    measured(place, place.run(*AGAINST, "-p", "no:randomly"))


def test_a_conftest_at_the_root_applies_to_the_workers_where_pytests_cache_is_too(place):
    place.write(
        """
        import os

        import pytest

        pytest_plugins = ["tests.fakes.steps"]

        def pytest_addoption(parser):
            parser.addoption("--slowly", action="store_true")

        def pytest_timeout_set_timer(item, settings):
            return None

        def pytest_configure(config):
            config.cache.set("theirs/started", True)

        @pytest.fixture(autouse=True)
        def everywhere(request):
            assert request.config.getoption("--slowly")
            assert request.config.cache.get("theirs/started", False)
            os.environ["APPLIED"] = "1"

        def pytest_sessionfinish(session):
            session.config.cache.set("theirs/ended", True)
        """,
        "conftest.py",
    )
    place.write(ONE.replace("    bench(", "    assert __import__('os').environ['APPLIED'] == '1'\n    bench("))
    place.write(".pytest_cache\n", ".gitignore")
    place.commit("some commit")
    done = place.run("--against", "git:HEAD", "-p", "timeout", "--slowly")
    assert "everywhere" not in done.output
    assert (done.code, done.outcomes()) == (0, {"test_fine": "unchanged"}), done.output


INI_FILES = {
    "pytest.ini": "[pytest]\nfilterwarnings = error\ntfbench_paths = speed\n",
    "pyproject.toml": "[tool.pytest.ini_options]\nfilterwarnings = ['error']\ntfbench_paths = ['speed']\n",
    "setup.cfg": "[tool:pytest]\nfilterwarnings = error\ntfbench_paths = speed\n",
}


NATIVE = [INI_FILES["pyproject.toml"].replace(".ini_options", "")] if pytest.version_tuple >= (9,) else []
"""pytest reads it from 9.0 on."""


@pytest.mark.parametrize(("name", "text"), [*INI_FILES.items(), *(("pyproject.toml", text) for text in NATIVE)])
def test_each_ini_file_works_and_warnings_as_errors_too(place, name, text):
    (place.root / "benchmarks").rename(place.root / "speed")
    place.write(text, name)
    measured(place, place.run(*AGAINST))


@pytest.mark.parametrize(("before", "now"), [("setup.cfg", "pyproject.toml"), ("", "pytest.ini"), ("pytest.ini", "")])
def test_another_commit_has_its_own_ini_file(place, before, now):
    text = {name: text.replace("speed", "benchmarks") for name, text in INI_FILES.items()}
    if before:
        place.write(text[before], before)
    place.commit("some commit")
    if before:
        (place.root / before).unlink()
    if now:
        place.write(text[now], now)
    place.write(*SLOWER_YET)
    measured(place, place.run("--against", "git:HEAD"))


# Odd places


def test_a_run_from_a_folder_below_uses_the_project_and_prints_a_command_that_works_there(place):
    place.write("[pytest]\n", "pytest.ini")
    place.write("def pytest_addoption(parser):\n    parser.addoption('--against')\n", "conftest.py")
    place.folder = place.root / "docs"
    place.folder.mkdir()
    done = place.run("--tfbench-against", "env:FAST=1")
    measured(place, done)
    words = re.search(r"(?m)^ +pytest --benchmark (.*)$", re.sub(r" \\\n +", " ", done.output))[1].split()
    assert words[:4] == ["--tfbench-against", "env:FAST=1", "--policy", "quick"]
    assert words[-1] == "../benchmarks/test_mine.py::test_slower"
    again = place.run(*words)
    measured(place, again)
    assert (place.root / ".tfbench").exists()
    assert not (place.folder / ".tfbench").exists()


def test_a_folder_or_a_selection_without_a_case_is_named_with_the_fix(place):
    (place.root / "docs").mkdir()
    names = "no benchmark was collected in docs; pytest collects functions named test_* from files named test_*.py or *_test.py"
    refused(place, place.run(*AGAINST, "docs"), 5, re.escape(names))
    line = "no benchmark is selected; `pytest --benchmark --collect-only -q` lists all"
    refused(place, place.run(*AGAINST, "-k", "mispelt"), 5, line)
    place.folder = place.root / "docs"
    fix = "start pytest in the project's folder; `tfbench init` there writes a pytest.ini and a first benchmark"
    refused(place, place.run(*AGAINST), 5, f"no benchmark was collected in {re.escape(str(place.folder))}; {fix}")


def test_a_path_with_blanks_and_umlauts_works(tmp_path):
    place = Place(tmp_path / "Größe und Maß", "mein 'Projekt' ä")
    place.commit("some commit")
    place.variables["LC_ALL"] = "C"
    saved = place.run("--save-baseline", "main")
    assert saved.code == 0, saved.output
    place.write(*SLOWER_YET)
    measured(place, place.run("--baseline", "main"))


def trust(place: Place) -> str:
    folder = re.escape(str(place.root))
    why = f"the git checkout {folder} belongs to another user, so git refuses it"
    return f"{why}; to trust it, run git config --global --add safe\\.directory {folder}"


def test_a_checkout_of_another_user_is_read_and_named_with_the_fix(place):
    place.commit("some commit")
    place.give_away()
    done = place.run(*AGAINST, "--resume")
    measured(place, done)
    assert re.search(f"(?m)^--resume: every case is measured: {trust(place)}$", done.output)
    refused(place, place.run("--against", "git:HEAD"), 4, f"git:HEAD: {trust(place)}")
    refused(place, place.run("--save-baseline", "main"), 4, unwritable(place))


def unwritable(place: Place) -> str:
    fix = "run in a copy of the checkout that you can write"
    return (
        f"the baseline 'main' cannot be saved, because this user cannot write into {re.escape(str(place.root))}; {fix}"
    )


def test_a_baseline_without_the_code_of_its_checkout_is_not_saved(place):
    """git refuses the checkout here, and the folder is writable."""
    place.commit("some commit")
    place.variables["GIT_TEST_ASSUME_DIFFERENT_OWNER"] = "1"
    done = place.run("--save-baseline", "main")
    assert done.code == 1, done.output
    assert re.search(f"(?m)^the baseline 'main' was not saved: {trust(place)}$", done.output)
    assert not (place.root / ".tfbench/baselines").exists()


def test_a_history_that_was_asked_for_and_cannot_be_written_fails_the_run(place, tmp_path_factory):
    place.commit("some commit")
    place.forbid_writing()
    done = place.run("--history")
    assert done.code == 1, done.output
    assert "the measurements of this run could not be recorded: " in done.output
    elsewhere = tmp_path_factory.mktemp("history")
    done = place.run(f"--history={elsewhere}")
    assert done.code == 0, done.output
    assert len(list(elsewhere.glob("*.jsonl"))) == 1


def test_a_read_only_checkout_is_measured_and_not_written(place):
    place.commit("some commit")
    place.forbid_writing()
    before = sorted(place.root.rglob("*"))
    done = place.run(*AGAINST)
    measured(place, done)
    assert "could not be recorded" not in done.output  # nothing was to be
    cache = re.escape(str(place.root / ".tfbench/trees"))
    fix = "run in a copy of the checkout that you can write"
    line = f"cannot extract the tree [0-9a-f]{{12}} into {cache}: .*; {fix}"
    refused(place, place.run("--against", "git:HEAD"), 4, line)
    refused(place, place.run("--save-baseline", "main"), 4, unwritable(place))
    assert sorted(place.root.rglob("*")) == before


def without_git(place: Place) -> Mapping[str, str]:
    folder = place.root.parent / "bin"
    folder.mkdir()
    return {"PATH": str(folder)}


def test_without_git_everything_but_other_commits_works(place):
    place.commit("some commit")
    place.variables |= without_git(place)
    done = place.run(*AGAINST, "--resume")
    measured(place, done)
    missing = "git is not installed, which comparing source trees needs; install git"
    assert f"--resume: every case is measured: {missing}" in done.output
    refused(place, place.run("--against", "git:HEAD"), 4, f"git:HEAD: {missing}")


def test_outside_a_checkout_everything_but_other_commits_works(place):
    measured(place, place.run(*AGAINST))
    line = f"git:HEAD: {re.escape(str(place.root))} is not in a git checkout; run `git init` there, and commit"
    refused(place, place.run("--against", "git:HEAD"), 4, line)
