"""Whatever ends a run early, every case that was due is in the report, and the gate does not pass."""

import os
import signal

import pytest

STEP = "from tests.fakes.steps import taking\n"
GOOD = "def test_good(bench):\n    bench(taking(bench, 1e-5))\n"
MEASURED = "def test_measured(bench):\n    bench(taking(bench, 1e-5))\n"


def gate(project, name="report.json"):
    done = project.tfbench("gate", name)
    return done.returncode, done.stdout + done.stderr


def test_what_pytest_skips_is_a_row_and_not_a_pass(project):
    project.write(
        "import pytest\n" + STEP + GOOD + """
@pytest.mark.skip(reason="too slow for us")
def test_skip(bench): ...

@pytest.mark.skipif("True", reason="always")
def test_skipif(bench): ...

@pytest.mark.xfail(run=False, reason="crashes")
def test_xfail(bench): ...

@pytest.mark.xfail(reason="known")
def test_fails(bench):
    bench(lambda: 1 / 0)
""")  # fmt: skip
    done = project.run("--against", "self")
    assert done.code == 1
    assert done.report["complete"] is True
    assert len(done.report["due"]) == 5
    skipped = {row["case"].rpartition("::")[2]: row["reason"] for row in done.report["skips"]}
    assert skipped == {
        "test_skip": "too slow for us",
        "test_skipif": "always",
        "test_xfail": "marked xfail without a run: [NOTRUN] crashes",
        "test_fails": "marked xfail (known): ZeroDivisionError: division by zero",
    }
    code, output = gate(project)
    assert code == 4
    assert "only 1 of 5 cases were compared (1 unchanged, 4 skipped)" in output
    assert "skipped benchmarks/test_mine.py::test_skipif: always" in output
    assert project.tfbench("gate", "report.json", "--min-compared", "0.15").returncode == 0


# Neighbouring launches differ by up to ninefold, first one way and then the other: no number of them decides.
NOISY = (
    STEP
    + """from pathlib import Path

def test_noisy(bench):
    launches = Path(__file__).with_name("launches")
    with launches.open("a") as file:
        file.write(".")
    bench(taking(bench, (1, 9, 5, 6, 9, 1, 6, 5)[launches.stat().st_size % 8] * 1e-5))
"""
)
UNDECIDED = {
    "inconclusive": NOISY,
    "skipped": "import pytest\n@pytest.mark.skip(reason='later')\ndef test_skip(bench): ...\n",
}


@pytest.mark.parametrize(
    ("kind", "code", "word"), [("inconclusive", 3, "inconclusive"), ("skipped", 4, "incomparable")]
)
def test_a_run_that_compares_nothing_is_no_pass_anywhere(project, kind, code, word):
    project.write(UNDECIDED[kind])
    done = project.run("--against", "self", "--report-html=r.html", "--report-markdown=r.md")
    assert done.code == 1, done.output
    assert f"\n{word}: 1 {kind} in " in done.output
    assert f"exit code 1, {word}: " in done.output
    assert (project.root / "r.md").read_text().startswith(f"**tfbench: {word}: 1 {kind}")
    assert f'<p class="headline">{word}: 1 {kind}' in (project.root / "r.html").read_text()
    assert gate(project)[0] == code
    alone = project.run()
    assert alone.code == 0, alone.output
    assert "\nnot gated: " in alone.output


def test_an_expected_failure_hides_no_regression(project):
    project.write("import pytest\n" + STEP + "@pytest.mark.xfail\n" + GOOD)
    done = project.run("--against", "self", "--inject-slowdown", "0.5")
    assert done.outcomes() == {"test_good": "regressed"}
    assert done.code == 1, done.output


@pytest.mark.slow
@pytest.mark.parametrize("option", ["", "--import-mode=importlib"])
def test_a_deleted_case_is_missing_where_a_file_needs_the_path_or_import_mode_of_the_run(project, option):
    project.write("SIZE = 1000\n", "sizes.py")  # found in the current folder alone
    for folder in ("a", "b"):  # two files of one name need the other import mode
        (project.root / "benchmarks" / folder).mkdir()
    both = "import sizes\n" + STEP + GOOD + MEASURED
    project.write(both, "benchmarks/a/test_same.py")
    if option:
        project.write(both.replace("test_", "test_b_"), "benchmarks/b/test_same.py")
    project.commit("base")
    name = "benchmarks/b/test_same.py" if option else "benchmarks/a/test_same.py"
    text = (project.root / name).read_text()
    project.write(text.partition("def test_measured")[0].partition("def test_b_measured")[0], name)
    done = project.run("--against", "git:HEAD", *filter(None, [option]))
    gone = "test_b_measured" if option else "test_measured"
    assert {name for name, outcome in done.outcomes().items() if outcome == "missing"} == {gone}, done.output
    assert gate(project)[0] == 4


def test_a_file_that_cannot_be_imported_is_an_error_row(project):
    project.write(STEP + GOOD)
    project.write("import no_such_module\n" + STEP + MEASURED, "benchmarks/test_broken.py")
    project.write("import pytest\npytest.importorskip('no_such_module')\n" + MEASURED, "benchmarks/test_skipped.py")
    for options in ((), ("--continue-on-collection-errors",)):
        done = project.run("--against", "self", *options)
        rows = {row["case"]: row["reason"] for row in done.report["verdicts"] if row["outcome"] == "error"}
        assert rows["benchmarks/test_broken.py"]["code"] == "not-collected-here"
        assert "No module named 'no_such_module'" in rows["benchmarks/test_broken.py"]["message"]
        assert [row["case"] for row in done.report["skips"]] == ["benchmarks/test_skipped.py"]
        assert gate(project)[0] == 5
    assert done.outcomes()["test_good"] == "unchanged"


def test_another_plugin_that_ends_a_test_leaves_a_row(project):
    project.write(STEP + GOOD + MEASURED)
    project.write(
        """
        import pytest

        def pytest_runtest_setup(item):
            if item.name == "test_good":
                pytest.fail("Timeout (>1.0s) from pytest-timeout.")

        @pytest.hookimpl(tryfirst=True)
        def pytest_pyfunc_call(pyfuncitem):
            if pyfuncitem.name == "test_measured":
                pytest.exit("enough")
        """,
        "conftest.py",
    )
    done = project.run("--against", "self")
    assert done.outcomes() == {"test_good": "error", "test_measured": "error"}
    ended = "pytest ended it in its setup phase: Failed: Timeout (>1.0s) from pytest-timeout."
    assert done.reason("test_good").startswith(f"{ended}; a race takes longer than a test: add --timeout=0 (")
    assert gate(project)[0] == 5


def test_a_run_that_fails_early_leaves_no_report_of_an_earlier_run(project):
    project.write(STEP + GOOD)
    assert project.run("--against", "self").code == 0
    assert gate(project) == (0, gate(project)[1])
    project.ended(project.start("--against", "git:none"))
    code, output = gate(project)
    assert code == 5
    assert "the run did not come to its end" in output


def test_a_run_that_is_killed_leaves_every_case_as_an_error(project):
    project.write(
        STEP
        + GOOD
        + "def test_waits(bench):\n    import pathlib, time\n    pathlib.Path('here').touch()\n    time.sleep(60)\n"
    )
    report = project.ended_by(signal.SIGKILL, "here", "--against", "self").report
    assert report["complete"] is False
    assert {row["case"]: row["reason"]["code"] for row in report["verdicts"]} == dict.fromkeys(
        report["due"], "not-measured"
    )
    code, output = gate(project)
    assert code == 5
    assert "the run did not come to its end" in output


def test_a_run_whose_code_is_edited_meanwhile_fails_and_saves_no_baseline(project):
    project.write("SIZE = 1000\n", "size.py")
    project.write(
        "import pathlib\n\n\ndef test_mine(bench):\n    pathlib.Path('size.py').write_text('SIZE = 2000')\n    bench(sum, [1] * 1000)\n"
    )
    project.commit("before")
    done = project.run("--save-baseline", "mine")
    assert done.code == 1
    assert (
        "code was edited during the run, so its measurements are of unknown code: size.py; run it again" in done.output
    )
    assert not done.report["complete"]
    assert "\nerror: 1 measured in " in done.output
    assert "the baseline 'mine' was not saved: the run failed" in done.output


def test_notes_name_cases_with_too_few_processors_and_names_that_no_comment_can_show(project):
    project.write("""
        import pytest

        @pytest.mark.tfbench(cpus=64)
        @pytest.mark.parametrize("size", [pytest.param(1000, id="`1000`")])
        def test_wide(bench, size):
            bench(sum, [1] * size)
        """)
    project.forked = False  # the run has the processors of this process
    done = project.run("--against", "self", "--cpus", str(min(os.sched_getaffinity(0))))
    assert "more processors are asked for than the 1 of this run: test_wide[`1000`]" in done.output
    assert "no comment can show benchmarks/test_mine.py::test_wide[`1000`], which is no name of" in done.output
    assert done.outcomes() == {"test_wide[`1000`]": "unchanged"}


def test_a_misspelt_fixture_is_an_error_and_a_plain_test_is_named(project):
    project.write(STEP + GOOD + "def test_typo(benhc): ...\n\ndef test_plain(): ...\n")
    done = project.run("--against", "self")
    assert done.code == 1
    assert "fixture 'benhc' not found" in done.output
    assert "left out, because they take neither bench of tfbench nor benchmark: test_plain" in done.output
    assert done.outcomes() == {"test_good": "unchanged", "test_typo": "error"}
    assert gate(project)[0] == 5


def test_a_plugin_that_measuring_processes_lack_is_named_with_the_fix(project):
    project.write("import pytest\n@pytest.fixture\ndef theirs(): return [1]\n", "their_plugin.py")
    project.write("def test_mine(bench, theirs): bench(sum, theirs)\nasync def test_async(bench): bench(sum, [1])\n")
    project.write("", "conftest.py")  # its folder is then importable
    done = project.run("-p", "their_plugin", "-p", "no:randomly")
    fix = "name the plugin's entry point or module in the conftest.py of the root"
    assert done.reason("test_mine").startswith("fixture 'theirs' not found; "), done.output
    assert fix in done.reason("test_mine")
    assert fix in done.reason("test_async")
    project.write("pytest_plugins = ['their_plugin']\n", "conftest.py")
    named = project.run("-p", "their_plugin", "-k", "not async")
    assert named.outcomes() == {"test_mine": "new"}, named.output


def test_without_a_gpu_nothing_is_measured_for_it(project):
    project.write(STEP + GOOD)
    done = project.run("--against", "self", "--device", "gpu")
    assert [row["reason"] for row in done.report["skips"]] == ["no GPU here: there is no NVIDIA driver"]
    assert gate(project)[0] == 4
