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
    project.write(".tfbench\n__pycache__\n*.json\n", ".gitignore")
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


@pytest.mark.parametrize(("code", "outcome"), [(FAST, "unchanged"), (SLOW, "regressed")])
def test_an_import_that_only_the_change_has_costs_the_old_cases_of_its_file_no_verdict(project, code, outcome):
    project.write(f"{code}MORE = 1e-5\n", "work.py")
    project.write(NEWER.format(size=2, more="MORE"))
    done = project.run("--against", "git:HEAD")
    assert done.outcomes() == {"test_sized": outcome, "test_same": outcome, "test_added": "new"}, done.output
    assert "raced with the other side's own benchmark file" in done.reason("test_sized")
    assert "cannot import name 'MORE'" in done.reason("test_added")


def test_a_file_that_changes_in_more_than_its_imports_is_incomparable_where_it_cannot_be_imported(project):
    project.write(f"{FAST}MORE = 1e-5\n", "work.py")
    project.write(NEWER.format(size=1, more="MORE"))
    done = project.run("--against", "git:HEAD")
    assert done.outcomes() == {"test_sized": "incomparable", "test_same": "incomparable", "test_added": "new"}, (
        done.output
    )
    assert "cannot import name 'MORE'" in done.reason("test_sized")


def test_a_helper_that_imports_what_only_the_change_has_costs_no_verdict_either(project):
    helper = "import work\n\n\ndef seconds():\n    return work.SECONDS\n"
    project.write(helper, "benchmarks/helper.py")
    project.write(
        "from helper import seconds\nfrom tests.fakes.steps import taking\n\n\ndef test_x(bench):\n    bench(taking(bench, seconds()))\n"
    )
    project.git("add", "-A")
    project.git("commit", "-qam", "a helper")
    project.write(f"{SLOW}MORE = 1\n", "work.py")
    project.write(f"from work import MORE\n{helper}", "benchmarks/helper.py")
    done = project.run("--against", "git:HEAD", "-o", "pythonpath=. benchmarks")
    assert done.outcomes() == {"test_x": "regressed"}, done.output


def test_a_project_that_the_change_adds_below_the_top_has_new_cases(project):
    (project.root / "sub" / "benchmarks").mkdir(parents=True)
    project.folder = project.root / "sub"
    project.write(INI, "sub/pytest.ini")
    project.write(FAST, "sub/work.py")
    project.write(BENCHMARKS.format(size=2, name="seconds"), "sub/benchmarks/test_mine.py")
    done = project.run("--against", "git:HEAD")
    assert done.outcomes() == {"test_sized": "new", "test_same": "new"}, done.output
    assert cli.main(["gate", str(project.report)]) == 0
