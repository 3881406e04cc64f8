"""The benchmarks of the working tree judge both sides, whatever a change does to them."""

import pytest

from tfbench import cli

pytestmark = pytest.mark.slow
INI = "[pytest]\npythonpath = .\n"
SLOW, FAST = "SECONDS = 2e-5\n", "SECONDS = 1e-5\n"
BENCHMARKS = """
    from tests.fakes.steps import taking
    from work import SECONDS

    SIZE = {size}

    def test_sized(bench):
        bench(taking(bench, SIZE * SECONDS))

    def test_same(bench):
        {name} = SECONDS
        bench(taking(bench, {name}))
"""


@pytest.fixture
def project(project):
    project.write(INI, "pytest.ini")
    project.write(FAST, "work.py")
    project.write(BENCHMARKS.format(size=2, name="seconds"))
    project.commit("base")
    return project


@pytest.mark.parametrize(("code", "outcome", "gate"), [(FAST, "unchanged", 0), (SLOW, "regressed", 1)])
def test_a_benchmark_may_change_in_the_change_that_it_judges(project, code, outcome, gate):
    project.write(code, "work.py")
    project.write(BENCHMARKS.format(size=1, name="other"))
    done = project.run("--against", "git:HEAD")
    assert done.outcomes() == {"test_sized": outcome, "test_same": outcome}, done.output
    assert cli.main(["gate", str(project.report)]) == gate


def test_a_saved_baseline_races_with_the_benchmarks_of_today(project):
    assert project.run("--save-baseline", "first").code == 0
    project.write(BENCHMARKS.format(size=1, name="other"))
    done = project.run("--baseline", "first")
    assert done.outcomes() == {"test_sized": "unchanged", "test_same": "unchanged"}, done.output
    project.write(SLOW, "work.py")
    done = project.run("--baseline", "first")
    assert done.outcomes() == {"test_sized": "regressed", "test_same": "regressed"}, done.output


@pytest.mark.parametrize(("before", "outcome", "gate"), [(True, "ungated", 0), (False, "regressed", 1)])
def test_a_case_whose_mark_says_so_on_both_sides_is_shown_and_not_gated(project, before, outcome, gate):
    mark = '@pytest.mark.tfbench(gate=False, reason="a prototype")'
    text = """
    import pytest
    from tests.fakes.steps import taking
    from work import SECONDS

    {mark}
    def test_sized(bench):
        bench(taking(bench, SECONDS))

    def test_same(bench):
        bench(taking(bench, 1e-5))
    """
    project.write(text.format(mark=mark if before else ""))
    project.commit("marked" if before else "not marked")
    project.write(text.format(mark=mark))
    project.write(SLOW, "work.py")
    done = project.run("--against", "git:HEAD")
    assert done.outcomes() == {"test_sized": outcome, "test_same": "unchanged"}, done.output
    assert ("shown and not gated (a prototype): " in done.output) == before
    assert cli.main(["gate", str(project.report)]) == done.code == gate


NEWER = """
    from tests.fakes.steps import taking
    from work import SECONDS, {more}

    SIZE = {size}

    def test_sized(bench):
        bench(taking(bench, SIZE * SECONDS))

    def test_same(bench):
        seconds = SECONDS
        bench(taking(bench, seconds))

    def test_added(bench):
        bench(taking(bench, {more}))
"""


@pytest.mark.parametrize(
    ("code", "size", "outcome"), [(FAST, 2, "unchanged"), (SLOW, 2, "regressed"), (FAST, 1, "incomparable")]
)
def test_an_import_that_only_the_change_has_costs_the_old_cases_of_an_equal_file_no_verdict(
    project, code, size, outcome
):
    project.write(f"{code}MORE = 1e-5\n", "work.py")
    project.write(NEWER.format(size=size, more="MORE"))
    done = project.run("--against", "git:HEAD")
    assert done.outcomes() == {"test_sized": outcome, "test_same": outcome, "test_added": "new"}, done.output
    own = "raced with the other side's own benchmark file"
    assert (own if size == 2 else "cannot import name 'MORE'") in done.reason("test_sized")
    assert "cannot import name 'MORE'" in done.reason("test_added")


def test_a_project_that_the_change_adds_below_the_top_has_new_cases(project):
    (project.root / "sub" / "benchmarks").mkdir(parents=True)
    project.folder = project.root / "sub"
    project.write(INI, "sub/pytest.ini")
    project.write(FAST, "sub/work.py")
    project.write(BENCHMARKS.format(size=2, name="seconds"), "sub/benchmarks/test_mine.py")
    done = project.run("--against", "git:HEAD")
    assert done.outcomes() == {"test_sized": "new", "test_same": "new"}, done.output
    assert cli.main(["gate", str(project.report)]) == 0


# The set-up of a benchmark, in every place that pytest or Python has for it: measured code half as slow again, and a
# benchmark that does a third less. Times that cancel out must not pass.

PLAIN = "from tests.fakes.steps import taking\nfrom work import SECONDS\n"
SET_UPS = {
    "pytest_generate_tests": {
        "benchmarks/conftest.py": "def pytest_generate_tests(metafunc):\n    metafunc.parametrize('n', [{n}], ids=['n'])\n",
    },
    "pytest_configure": {"benchmarks/conftest.py": "import settings\n\ndef pytest_configure():\n    settings.N = {n}\n"},
    "__init__.py of the folder": {
        "benchmarks/__init__.py": "N = {n}\n",
        "benchmarks/test_mine.py": PLAIN + "from benchmarks import N\n\ndef test_x(bench):\n    bench(taking(bench, N * SECONDS))\n",
    },
    "a variable that conftest.py sets": {
        "conftest.py": "import os\n\nos.environ['SIZE'] = '{n}'\n",
        "benchmarks/test_mine.py": PLAIN + "import os\n\ndef test_x(bench):\n    bench(taking(bench, int(os.environ['SIZE']) * SECONDS))\n",
    },
    "an option of the ini file": {
        "conftest.py": "import pytest\n\ndef pytest_addoption(parser):\n    parser.addini('size', 'work')\n\n"
        "@pytest.fixture\ndef n(request):\n    return int(request.config.getini('size'))\n",
        "pytest.ini": INI + "size = {n}\n",
    },
    "a data file": {
        "benchmarks/size.txt": "{n}\n",
        "benchmarks/test_mine.py": PLAIN + "from pathlib import Path\n\ndef test_x(bench):\n"
        "    bench(taking(bench, int(Path(__file__).with_name('size.txt').read_text()) * SECONDS))\n",
    },
}  # fmt: skip
OF_A_SETTING = PLAIN + "import settings\n\ndef test_x(bench):\n    bench(taking(bench, settings.N * SECONDS))\n"
OF_A_FIXTURE = PLAIN + "def test_x(bench, n):\n    bench(taking(bench, n * SECONDS))\n"


@pytest.mark.parametrize("where", SET_UPS)
def test_slower_code_is_found_whatever_set_up_of_its_benchmark_shrinks(project, where):
    files = SET_UPS[where]
    if "benchmarks/test_mine.py" not in files:
        conftest = next(text for name, text in files.items() if name.endswith("conftest.py"))
        files = {**files, "benchmarks/test_mine.py": OF_A_SETTING if "settings" in conftest else OF_A_FIXTURE}
    project.write("N = 1\n", "settings.py")

    def write(size, seconds):
        project.write(f"SECONDS = {seconds}\n", "work.py")
        for name, text in files.items():
            project.write(text.replace("{n}", str(size)), name)

    write(3, 1e-5)
    project.commit("before")
    write(2, 1.5e-5)
    done = project.run("--against", "git:HEAD")
    assert [outcome for name, outcome in done.outcomes().items() if "test_x" in name] == ["regressed"], done.output
    assert done.report["yardstick"], done.output
    assert "the yardstick itself changed, and both sides ran the benchmarks of the change:" in done.output
    assert cli.main(["gate", str(project.report)]) == 1


def test_what_a_change_edits_in_its_benchmarks_is_named(project):
    project.write(BENCHMARKS.format(size=400, name="seconds"))
    project.write("def pytest_configure():\n    pass\n", "conftest.py")
    project.write(f"{INI}markers = slow\n", "pytest.ini")
    done = project.run("--against", "git:HEAD", "--strict-gate")
    lines = [line.strip() for line in done.output.splitlines()]
    for line in (
        "benchmarks/test_mine.py: SIZE (SIZE = 2 -> SIZE = 400)",
        "conftest.py: pytest_configure (nothing -> def pytest_configure():)",
        "pytest.ini (nothing -> markers = slow)",
    ):
        assert line in lines, done.output
    assert done.sound
    project.tfbench("gate", "report.json", "--comment", "c.md")
    assert "The yardstick itself changed" in (project.root / "c.md").read_text()


# A selection means the same on both sides


@pytest.mark.parametrize("ini", [True, False])
@pytest.mark.parametrize("below", [True, False])
def test_an_expression_does_not_match_the_folders_that_a_suite_lies_in(project, ini, below, tmp_path_factory):
    place = (project.root if below else tmp_path_factory.mktemp("in")) / "speed"
    place.mkdir()
    project.folder = place
    project.root, project.report = (project.root, project.report) if below else (place, place / "report.json")
    test = "def test_{}(bench):\n    bench(sum, [1] * 1000)\n"
    for name in ("speed", "other"):
        (place / f"test_{name}.py").write_text(test.format(name))
    if ini:
        (place / "pytest.ini").write_text("[pytest]\n")
    project.commit("base")
    (place / "test_speed.py").write_text("# changed\n" + test.format("speed"))
    here = set(project.run("--benchmark", "--collect-only", "-q", "-k", "speed", benchmark=False).output.split())
    done = project.run("--against", "git:HEAD", "-k", "speed")
    assert set(done.report["due"]) == {name for name in here if "::" in name}, done.output
    assert len(done.report["due"]) == 1 + (below and not ini), "pytest's -k matches folders below its root"


CLASSES = """
    import tensorflow as tf

    from work import SECONDS

    N = {n}


    class Bench(tf.test.Benchmark):
        def benchmark_x(self):
            self.report_benchmark(wall_time=N * SECONDS, name="x")
"""


@pytest.mark.tensorflow
def test_a_class_of_tf_test_is_judged_by_its_file_of_the_change_as_well(project):
    project.write(f"{INI}tfbench_tf_test_benchmarks = perf/*.py\n", "pytest.ini")
    (project.root / "perf").mkdir()
    project.write(CLASSES.format(n=3), "perf/bench_x.py")
    project.commit("a class")
    project.write("SECONDS = 1.5e-5\n", "work.py")
    project.write(CLASSES.format(n=2), "perf/bench_x.py")
    done = project.run("--against", "git:HEAD", "perf/bench_x.py")
    assert done.outcomes() == {"Bench.benchmark_x": "regressed"}, done.output
    assert "perf/bench_x.py: N (N = 3 -> N = 2)" in done.output
