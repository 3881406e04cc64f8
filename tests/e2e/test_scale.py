"""The scale of a run chooses the shapes, and is part of the names of its cases."""

import pytest

BENCHMARKS = """
    import os

    import pytest

    from tests.fakes.steps import taking
    from tfbench import Axis, Level, across

    @across(Axis("kind", Level("plain"), Level("odd")))
    def test_work(bench, variant):
        scale = os.environ.get("TFBENCH_SCALE", "small")
        bench(taking(bench, {"small": 1e-5, "medium": 2e-5, "large": 4e-5}[scale]))

    @pytest.mark.parametrize("size", [1, 2])
    def test_sizes(bench, size):
        bench(taking(bench, 1e-5))

    def test_plain(bench):
        bench(taking(bench, 1e-5))
"""
NAMES = ("test_work[kind=plain{}]", "test_work[kind=odd{}]", "test_sizes[1{}]", "test_sizes[2{}]")


@pytest.mark.slow
def test_unlike_scales_have_no_case_in_common(project):
    project.write(BENCHMARKS)
    project.commit("benchmarks")
    small = project.run("--save-baseline", "first")
    assert set(small.outcomes()) == {*(name.format("") for name in NAMES), "test_plain"}
    large = project.run("--against", "self", "--scale", "large")
    assert set(large.outcomes()) == {*(name.format("-scale=large") for name in NAMES), "test_plain[scale=large]"}
    assert set(large.outcomes().values()) == {"unchanged"}, large.output
    unlike = project.run("--baseline", "first", "--scale", "large")
    outcomes = unlike.outcomes()
    assert {outcomes[name.format("-scale=large")] for name in NAMES} == {"new"}, unlike.output
    assert {outcomes[name.format("")] for name in NAMES} == {"missing"}
    # The very same names select, in a run of the same scale and a baseline of it.
    one = ("--scale", "medium", "benchmarks/test_mine.py::test_work[kind=odd-scale=medium]")
    assert project.run(*one, "--save-baseline", "second").code == 0
    same = project.run(*one, "--baseline", "second")
    assert same.outcomes() == {"test_work[kind=odd-scale=medium]": "unchanged"}, same.output
