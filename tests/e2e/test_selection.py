"""What a change deselects, marks or loosens for itself alone is still judged as its base would judge it."""

import pytest

from tests.e2e.project import Project

STEP = "import pytest\nfrom pace import PACE\nfrom tests.fakes.steps import taking\n"
BENCHMARK = "\n\n{mark}def test_{name}(bench{more}):\n    bench(taking(bench, PACE * {seconds}))\n"
pytestmark = pytest.mark.slow
NAMES = ("one", "two", "three")


def benchmarks(marks=(), seconds=1e-5, names=NAMES, **more):
    marks = dict(marks)
    return STEP + "".join(
        BENCHMARK.format(mark=f"{marks[name]}\n" if name in marks else "", name=name, seconds=seconds,
                         more=more.get(name, ""))
        for name in names
    )  # fmt: skip


@pytest.fixture
def project(tmp_path):
    """A project whose commit has three benchmarks in a file, a marked one in another file, and a pytest.ini."""
    found = Project(tmp_path)
    found.write("[pytest]\nmarkers =\n    slow\n", "pytest.ini")
    found.write("PACE = 1\n", "pace.py")
    found.write(benchmarks())
    found.write(benchmarks({"slow": "@pytest.mark.slow"}, names=["slow"]), "benchmarks/test_other.py")
    found.commit("base")
    return found


HOOK = """
def pytest_collection_modifyitems(config, items):
    gone = [item for item in items if item.name == "test_two"]
    items[:] = [item for item in items if item not in gone]
    config.hook.pytest_deselected(items=gone)
"""
MARKED = benchmarks({"two": "@pytest.mark.slow"})
INI = "[pytest]\nmarkers =\n    slow\n"
HIDING = {
    "a mark": (MARKED, {}, ("-m", "not slow")),
    "a hook": (benchmarks(), {"conftest.py": HOOK}, ("-m", "not slow")),
    "a hook, with a file as the argument": (benchmarks(), {"conftest.py": HOOK}, ("benchmarks/test_mine.py",)),
    "an expression in addopts": (benchmarks(), {"pytest.ini": f"{INI}addopts = -k 'not two'\n"}, ("-m", "not slow")),
    "a deselection in addopts": (
        benchmarks(), {"pytest.ini": f"{INI}addopts = --deselect benchmarks/test_mine.py::test_two\n"}, ("-m", "not slow"),
    ),
    "another function of the same code": (
        benchmarks({"two": "@pytest.mark.slow"}, names=[*NAMES, "twin"]), {}, ("-m", "not slow"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("hiding", HIDING)
def test_a_case_that_only_the_change_deselects_is_missing(project, hiding):
    text, files, options = HIDING[hiding]
    project.write(text)
    for name, content in files.items():
        project.write(content, name)
    done = project.run("--against", "git:HEAD", *options)
    outcomes = {name: outcome for name, outcome in done.outcomes().items() if name != "test_twin"}
    assert outcomes == {"test_one": "unchanged", "test_two": "missing", "test_three": "unchanged"}, done.output
    assert done.reason("test_two").startswith("git:HEAD runs it under the same options, and it is deselected here;")
    assert "benchmarks/test_mine.py::test_two" in done.report["due"]
    gate = project.tfbench("gate", "report.json")
    assert gate.returncode == 4
    assert "missing benchmarks/test_mine.py::test_two" in gate.stdout


def test_paths_in_addopts_do_not_narrow_what_the_base_runs(project):
    project.write(f"{INI}addopts = benchmarks/test_mine.py\n", "pytest.ini")
    done = project.run("--against", "git:HEAD")
    assert done.outcomes() == {"test_one": "unchanged", "test_two": "unchanged", "test_three": "unchanged",
                               "test_slow": "missing"}  # fmt: skip


def test_what_both_sides_deselect_or_the_user_leaves_out_is_not_missing(project):
    for options in (("-m", "not slow"), ("-k", "mine"), ("--ignore", "benchmarks/test_other.py"),
                    ("--ignore-glob", "*other*"), ("--deselect", "benchmarks/test_other.py"),
                    ("benchmarks/test_mine.py",), ("-o", "python_files=test_m*.py")):  # fmt: skip
        done = project.run("--against", "git:HEAD", *options)
        assert done.outcomes() == {"test_one": "unchanged", "test_two": "unchanged", "test_three": "unchanged"}, options
    project.write(f"{INI}addopts = -m 'not slow'\n", "pytest.ini")
    project.commit("the base has it")
    assert "test_slow" not in project.run("--against", "git:HEAD").outcomes()


@pytest.mark.parametrize(("option", "run"), [("--lf", ["two"]), ("--stepwise", ["two", "three"])])
def test_cases_that_a_rerun_of_failures_leaves_out_are_not_missing(project, option, run):
    files = ("--against", "git:HEAD", option, "benchmarks/test_mine.py")
    project.write(benchmarks(two=", no_such_fixture"))
    assert project.run(*files).outcomes()["test_two"] == "error"
    project.write(benchmarks())
    done = project.run(*files)
    assert (done.code, done.outcomes()) == (0, {f"test_{name}": "unchanged" for name in run}), done.output


@pytest.mark.parametrize("way", ["--pyargs", "--rootdir"])
def test_no_other_name_of_a_file_or_of_the_root_makes_its_cases_new(project, tmp_path_factory, way):
    (project.root / "benchmarks" / "__init__.py").touch()
    project.commit("a package")
    link = tmp_path_factory.mktemp("linked") / "link"
    link.symlink_to(project.root)
    given = ["--pyargs", "benchmarks.test_mine"] if way == "--pyargs" else ["--rootdir", str(link), "-k", "mine"]
    project.write("PACE = 3\n", "pace.py")
    done = project.run("--against", "git:HEAD", *given)
    assert done.outcomes() == dict.fromkeys([f"test_{name}" for name in NAMES], "regressed"), done.output


def test_a_file_that_only_the_configuration_of_the_change_names_is_compared(project):
    project.write(f"{INI}tfbench_paths = benchmarks/test_other.py\n", "pytest.ini")
    project.commit("fewer benchmarks")
    project.write(f"{INI}tfbench_paths = benchmarks/test_mine.py\n", "pytest.ini")
    project.write("PACE = 3\n", "pace.py")
    done = project.run("--against", "git:HEAD")
    regressed = dict.fromkeys([f"test_{name}" for name in NAMES], "regressed")
    assert done.outcomes() == {**regressed, "test_slow": "missing"}, done.output


def test_a_case_that_only_the_change_selects_races(project):
    project.write(benchmarks(names=["slow"]), "benchmarks/test_other.py")
    done = project.run("--against", "git:HEAD", "-m", "not slow", "benchmarks/test_other.py")
    assert done.outcomes() == {"test_slow": "unchanged"}


LOOSE = "@pytest.mark.tfbench(minimum_effect=.45, tolerance=.9)"
LOOSENING = f"""
import pytest

def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker({LOOSE[1:]})
"""


@pytest.mark.parametrize("way", ["mark", "conftest", "saved"])
def test_a_change_does_not_loosen_its_own_thresholds(project, way):
    if way == "saved":
        assert project.run("--save-baseline", "main", "-k", "one").code == 0
    if way == "conftest":
        project.write(LOOSENING, "benchmarks/conftest.py")
    project.write("PACE = 1.3\n", "pace.py")
    project.write(benchmarks({} if way == "conftest" else {"one": LOOSE}))
    side = ("--baseline", "main") if way == "saved" else ("--against", "git:HEAD")
    done = project.run(*side, "-k", "one")
    assert done.outcomes()["test_one"] == "regressed", done.output
    row = next(row for row in done.report["verdicts"] if row["metric"] == "time")
    assert "thresholds" not in row
    said = "its own thresholds (minimum effect 45.0%, tolerance 90.0%) are looser than the baseline's"
    assert said in done.reason("test_one")


@pytest.mark.parametrize(
    ("base", "change", "used"),
    [
        ("quick", "quick", None),
        ("strict", "quick", {"minimum_effect": 0.0015, "tolerance": 0.01}),
        ("strict", "quick --tfbench-gate-suite=5%", {"minimum_effect": 0.0015, "tolerance": 0.01}),
    ],
)
def test_the_policy_in_addopts_of_the_base_sets_the_thresholds(project, base, change, used):
    project.policy = ()
    project.write(f"{INI}addopts = --tfbench-policy {base} --tfbench-gate-suite=5%\n", "pytest.ini")
    project.commit("policy")
    project.write(f"{INI}addopts = --tfbench-policy {change}\n", "pytest.ini")
    done = project.run("--against", "git:HEAD", "-k", "one")
    row = next(row for row in done.report["verdicts"] if row["metric"] == "time")
    assert row["outcome"] != "error", done.output
    assert row.get("thresholds") == used


def test_the_command_line_chooses_the_scale_of_both_sides(project):
    project.write(f"{INI}addopts = --tfbench-scale=large\n", "pytest.ini")
    project.commit("large")
    done = project.run("--against", "git:HEAD", "-k", "one", "--scale=small")
    assert done.outcomes() == {"test_one": "unchanged"}, done.output


WORK = "def work():\n    return sum(range({}))\n"


@pytest.mark.parametrize("where", ["addopts of the change", "addopts of the base", "the command line"])
def test_the_base_or_the_command_line_chooses_the_statistic(project, where):
    project.write(WORK.format(4000), "source.py")
    project.write("import source\n\n\ndef test_work(bench):\n    bench(source.work)\n")
    project.write("", "conftest.py")
    mean = "--tfbench-statistic=mean"
    project.write(f"{INI}addopts = {mean}\n" if where == "addopts of the base" else INI, "pytest.ini")
    project.commit("before")
    project.write(WORK.format(4010), "source.py")
    project.write(f"{INI}addopts = {mean}\n" if where == "addopts of the change" else INI, "pytest.ini")
    given = [mean] if where == "the command line" else []
    done = project.run("--against", "git:HEAD", "benchmarks/test_mine.py", *given)
    (row,) = [row for row in done.report["verdicts"] if row["metric"] == "time"]
    assert (row.get("tail") is not None) == (where == "addopts of the change"), done.output


OWN_OPTIONS = """
import pytest

def pytest_addoption(parser):
    parser.addoption("--nightly", action="store_true")
    parser.addoption("--calls", type=int, default=1)

def pytest_collection_modifyitems(config, items):
    for item in items:
        if "nightly" in item.name and not config.getoption("--nightly"):
            item.add_marker(pytest.mark.skip(reason="need --nightly"))

@pytest.fixture
def calls(request):
    return request.config.getoption("--calls")
"""


@pytest.mark.parametrize("given", [[], ["--nightly", "--calls", "3"]])
def test_options_of_the_project_reach_all_processes(project, given):
    project.write(OWN_OPTIONS, "conftest.py")
    project.write("def test_nightly(bench, calls):\n    assert calls == 3\n    bench(sum, [1] * 1000)\n")
    project.commit("before")
    done = project.run("--against", "git:HEAD", "benchmarks/test_mine.py", *given)
    assert done.outcomes() == ({"test_nightly": "unchanged"} if given else {}), done.output
    assert [skip["reason"] for skip in done.report["skips"]] == ([] if given else ["need --nightly"])
    if given:
        settings = [done.report["sides"][side]["settings"] for side in ("baseline", "contender")]
        assert settings == 2 * [{"PYTEST_OPTION_calls": "3", "PYTEST_OPTION_nightly": "True"}]


def test_a_benchmark_that_a_variable_of_the_changes_conftest_skips_is_no_benchmark_that_the_base_skips(project):
    project.write("import os\n" + benchmarks({"two": "@pytest.mark.skipif('OMITTED' in os.environ, reason='omitted')"}))
    project.commit("skipped where a variable is set")
    project.write('import os\n\nos.environ["OMITTED"] = "1"\n', "conftest.py")
    done = project.run("--against", "git:HEAD", "-k", "two", "benchmarks/test_mine.py")
    assert done.outcomes() == {"test_two": "incomparable"}, done.output


STARTING = """
    import subprocess
    import sys


    def test_mine(bench):
        bench(subprocess.check_output, [sys.executable, "-c", "from mine import work; work()"])
"""
WORKING = "import time\n\n\ndef work():\n    time.sleep({seconds})\n"


def test_python_processes_of_a_step_import_the_tree_of_their_side(project, monkeypatch):
    (project.root / "src").mkdir()
    project.write(WORKING.format(seconds=0), "src/mine.py")
    project.write(STARTING)
    project.commit("a step that starts Python")
    project.write(WORKING.format(seconds=0.5), "src/mine.py")
    given = project.environment()
    path = f"{given['PYTHONPATH']}:{project.root / 'src'}"
    monkeypatch.setattr(project, "environment", lambda: {**given, "PYTHONPATH": path})
    done = project.run("--against", "git:HEAD", "benchmarks/test_mine.py")
    assert done.outcomes() == {"test_mine": "regressed"}, done.output


PLUGIN = """
    def pytest_configure(config):
        raise RuntimeError("not wanted")
"""


def test_the_other_tree_is_collected_with_the_plugins_of_the_command_line(project):
    project.write(PLUGIN, "unwanted.py")
    project.write(HOOK, "leaving_out.py")
    project.write(f"{INI}addopts = -p unwanted\npythonpath = .\n", "pytest.ini")
    project.commit("plugins")
    project.write("", "added.py")
    done = project.run("--against", "git:HEAD", "-p", "no:unwanted", "-p", "leaving_out", "-p", "added")
    assert done.outcomes() == dict.fromkeys(("test_one", "test_three", "test_slow"), "unchanged"), done.output


def test_a_warning_that_is_an_error_does_not_hide_the_cases_of_the_other_tree(project):
    project.write("import warnings\n\ndef pytest_configure():\n    warnings.warn('old')\n", "conftest.py")
    project.write(f"{INI}filterwarnings = error\n", "pytest.ini")
    project.commit("with a warning")
    project.write("", "conftest.py")
    project.write(benchmarks(names=NAMES[:2]))
    done = project.run("--against", "git:HEAD", "benchmarks/test_mine.py")
    assert done.outcomes() == {"test_one": "unchanged", "test_two": "unchanged", "test_three": "missing"}, done.output


SKIPPING = """
import pytest

@pytest.fixture(autouse=True)
def careful(request):
    if request.node.name in {names}:
        pytest.skip("not here")
"""


def test_a_case_that_only_the_change_lets_skip_itself_is_open_and_one_that_skips_itself_in_the_base_is_not(project):
    project.write(SKIPPING.format(names=["test_three"]), "conftest.py")
    project.commit("one that skips itself")
    project.write(SKIPPING.format(names=["test_two", "test_three"]), "conftest.py")
    done = project.run("--against", "git:HEAD", "benchmarks/test_mine.py")
    assert done.outcomes() == {"test_one": "unchanged", "test_two": "incomparable"}, done.output
    assert "git:HEAD runs it: not here" in done.reason("test_two")
    assert [row["case"] for row in done.report["skips"]] == ["benchmarks/test_mine.py::test_three"]
    assert project.tfbench("gate", "report.json").returncode == 4
