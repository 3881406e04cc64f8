"""A commit that changes the benchmark itself, and its gate."""

import pytest

from tfbench import cli

BENCHMARKS = """
    import sizes
    from tests.fakes.steps import taking

    SIZE = {size}

    def test_sized(bench):
        bench(taking(bench, SIZE * 1e-5))

    def test_from_a_helper(bench):
        bench(taking(bench, sizes.HELPED * 1e-5))

    def test_worked(bench):
        from work import FLOPS
        bench(taking(bench, FLOPS * 1e-5), flops=FLOPS)

    def test_renamed(bench):
        {name} = 1e-5
        bench(taking(bench, {name}))

    def test_same(bench):
        bench(taking(bench, 1e-5))
"""


@pytest.mark.slow
def test_its_changes_are_incomparable_unless_they_are_allowed(project, capsys):
    project.allows_changed = False
    project.write("[pytest]\npythonpath = .\n", "pytest.ini")
    project.write(".tfbench\n__pycache__\n*.json\n", ".gitignore")
    project.write("FLOPS = 1\n", "work.py")
    project.write("HELPED = 1\nUNUSED = 1\n", "benchmarks/sizes.py")
    project.write(BENCHMARKS.format(size=1, name="seconds"))
    project.commit("base")
    project.write("FLOPS = 2\n", "work.py")
    project.write("HELPED = 2\nUNUSED = 2\n", "benchmarks/sizes.py")
    project.write(BENCHMARKS.format(size=2, name="time"))
    done = project.run("--against", "git:HEAD")
    assert done.outcomes() == {
        "test_sized": "incomparable", "test_from_a_helper": "incomparable", "test_worked": "incomparable",
        "test_renamed": "unchanged", "test_same": "unchanged",
    }, done.output  # fmt: skip
    for case, why in (
        ("test_sized", "the benchmark itself differs between the sides"),
        ("test_from_a_helper", "in its function or in what that uses in the benchmark files"),
        ("test_worked", "a call needs 2 FLOPs, and 1 on the other side"),
    ):
        reason = done.reason(case)
        assert reason.startswith(
            "the benchmark itself has changed, so this counts under --allow-changed-benchmarks only: "
        )
        assert why in reason
        assert "slower" in reason
    assert cli.main(["gate", str(project.report)]) == 4
    allowed = project.run("--against", "git:HEAD", "--allow-changed-benchmarks")
    assert allowed.outcomes() == {
        "test_sized": "regressed", "test_from_a_helper": "regressed", "test_worked": "regressed",
        "test_renamed": "unchanged", "test_same": "unchanged",
    }, allowed.output  # fmt: skip


@pytest.mark.slow
def test_its_changes_are_incomparable_with_a_saved_baseline_too(project):
    project.allows_changed = False
    project.write(".tfbench\n__pycache__\n*.json\n", ".gitignore")
    text = """
        from tests.fakes.steps import taking

        SIZE = {size}

        def test_sized(bench):
            bench(taking(bench, SIZE * 1e-5))

        def test_same(bench):
            bench(taking(bench, 1e-5))
    """
    project.write(text.format(size=1))
    project.commit("base")
    assert project.run("--save-baseline", "first").code == 0
    project.write(text.format(size=2))
    done = project.run("--baseline", "first")
    assert done.outcomes() == {"test_sized": "incomparable", "test_same": "unchanged"}, done.output
