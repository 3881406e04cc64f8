"""``tfbench versions`` with real processes. The sides differ in settings, which need no installation."""

import json

import pytest

BENCHMARK = """
    import os
    import sys

    import pytest
    from tests.fakes.steps import taking


    def test_work(bench):
        bench(taking(bench, 1e-5 * int(os.environ.get("SLOWER", "1"))))


    def test_same(bench):
        bench(taking(bench, 1e-5))


    def test_lacking(bench):
        if "SLOWER" in os.environ:
            pytest.skip("not before 9.9")
        bench(taking(bench, 1e-5))


    def test_crash(bench):
        if "SLOWER" in os.environ:
            print("about to go", file=sys.stderr, flush=True)
            os.abort()
        bench(sum, range(1000))
"""


@pytest.mark.slow
def test_several_sides_race_each_case_in_the_same_rounds(project):
    project.write(BENCHMARK)
    done = project.tfbench(
        "versions", "env:OTHER=1", "env:SLOWER=2", "self", "--report-json", "v.json", "--report-markdown", "v.md"
    )
    assert done.returncode == 0, done.stderr
    reported = json.loads((project.root / "v.json").read_text())
    assert reported["schema"] == "tfbench-versions/1"
    assert list(reported["sides"]) == ["env:OTHER=1", "env:SLOWER=2", "self"]
    cases = {case["case"].rpartition("::")[2]: case["sides"] for case in reported["cases"]}
    work = cases["test_work"]
    assert "ratio" not in work["env:OTHER=1"]
    assert work["env:SLOWER=2"]["outcome"] == "regressed"
    assert work["env:SLOWER=2"]["ratio"]["center"] == pytest.approx(2, rel=1e-3)
    assert work["self"]["outcome"] == "unchanged"
    assert cases["test_same"]["env:SLOWER=2"]["outcome"] == "unchanged"
    assert cases["test_lacking"]["env:SLOWER=2"] == {"why": "skipped: not before 9.9"}
    assert cases["test_lacking"]["self"]["outcome"] != "regressed"
    assert done.stdout.index("test_work") < done.stdout.index("test_same")  # what got worse stands first
    assert "env:SLOWER=2 against env:OTHER=1" in done.stdout
    assert "self against env:OTHER=1" in done.stdout
    assert "4 cases on 3 sides" in done.stdout
    broke = cases["test_crash"]["env:SLOWER=2"]["why"]
    assert broke.startswith("broke: ")
    assert "SIGABRT" in broke
    assert cases["test_crash"]["self"]["outcome"] != "regressed"
    assert "  broke: " in done.stdout
    page = (project.root / "v.md").read_text()
    assert "| case | env:OTHER=1 | env:SLOWER=2 | self |" in page
    assert "skipped: not before 9.9" in page
    words = ("env:OTHER=1", "env:SLOWER=1", "--fail-on-regression", "-k", "crash")
    alone = project.tfbench("versions", *words)
    assert alone.returncode == 5, alone
    assert "no other side can run it" in alone.stdout
    turned = project.tfbench("versions", "env:SLOWER=2", "env:OTHER=1", "-k", "lacking", "--report-json", "v.json")
    assert turned.returncode == 0, turned.stderr
    (case,) = json.loads((project.root / "v.json").read_text())["cases"]
    assert case["sides"]["env:OTHER=1"] == {"why": "the reference cannot run it"}


def test_a_side_that_does_not_start_is_a_reason_and_the_others_are_raced(project):
    project.write(
        """
        import os

        if "SLOWER" in os.environ:
            os.abort()

        def test_work(bench):
            bench(sum, range(1000))
        """
    )
    done = project.tfbench(
        "versions", "env:OTHER=1", "env:SLOWER=1", "self", "--report-json", "v.json", "--fail-on-regression"
    )
    assert done.returncode == 5, done
    (case,) = json.loads((project.root / "v.json").read_text())["cases"]
    assert case["sides"]["env:SLOWER=1"]["why"].startswith("does not start: ")
    assert case["sides"]["self"]["outcome"] == "unchanged"
    assert "  does not start: " in done.stdout
    nothing = project.tfbench("versions", "env:OTHER=1", "env:SLOWER=1")
    assert nothing.returncode == 5, nothing
    assert "env:SLOWER=1: the measuring process did not start" in nothing.stderr


def test_shared_set_ups_of_each_version_are_told(project):
    project.write(
        """
        def build(folder):
            (folder / "data.txt").write_text("1")

        def test_reads(bench, shared):
            bench((shared(build) / "data.txt").read_text)
        """
    )
    done = project.tfbench("versions", "self", "env:OTHER=1", "--no-changes")
    assert done.returncode == 0, done.stderr
    assert "test_reads: each version builds shared set-ups of its own" in " ".join(done.stdout.split())


@pytest.mark.tensorflow
def test_what_changed_is_listed_with_its_cause(project):
    project.write(
        """
        import os
        import tensorflow as tf

        @tf.function
        def step(x):
            for _ in range(60 if "MORE" in os.environ else 20):
                x = tf.tanh(x @ x)
            return x

        def test_grown(bench):
            bench(step, tf.ones([64, 64]))
        """
    )
    done = project.tfbench(
        "versions", "env:OTHER=1", "env:MORE=1", "--report-json", "v.json", "--report-markdown", "v.md"
    )
    assert done.returncode == 0, done.stderr
    (case,) = json.loads((project.root / "v.json").read_text())["cases"]
    changes = {change["metric"]: change for change in case["changes"]}
    assert changes["time"]["outcome"] == "regressed"
    assert changes["time"]["cause"], changes
    ops = changes["graph_ops"]
    before, now = ops["values"]["baseline"], ops["values"]["contender"]
    assert now == pytest.approx(3 * before, rel=0.2)
    assert "gained" in ops["cause"]
    assert "env:MORE=1 against env:OTHER=1" in done.stdout
    assert changes["time"]["cause"] in " ".join(done.stdout.split())
    assert "ops before" in (project.root / "v.md").read_text()
