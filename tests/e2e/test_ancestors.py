"""Common ancestors of both sides: real runs tell where they cannot be used."""

import shutil

import pytest
import typing_extensions

from tests.e2e.project import Project

BENCHMARK = """
    import os
    import pathlib
    import sys

    {before}
    import tensorflow as tf
    from tests.fakes.steps import taking

    PIDS = pathlib.Path("pids")

    def test_add(bench):
        with PIDS.open("a") as file:
            file.write(f"{{os.getppid()}} {{pathlib.Path(f'/proc/{{os.getppid()}}/stat').read_text().split()[3]}}\\n")
        bench(taking(bench, 1e-5))
"""


def run(tmp_path, before):
    """Returns the output of a run, the number of its zygotes that timed launches, and that of their ancestors."""
    project = Project(tmp_path)
    project.write(BENCHMARK.format(before=before))
    done = project.run("--against", "self")
    assert done.code == 0, done.output
    family = [line.split() for line in (tmp_path / "pids").read_text().splitlines()]
    return done.output, len({zygote for zygote, _ in family}), len({ancestor for _, ancestor in family})


@pytest.mark.smoke
@pytest.mark.tensorflow
def test_both_sides_are_forked_from_one_ancestor(tmp_path):
    output, zygotes, ancestors = run(tmp_path, "")
    assert "imports TensorFlow itself" not in output
    assert zygotes == 2 * ancestors


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("before", "reason"),
    [
        ("os.environ['TF_ENABLE_ONEDNN_OPTS'] = '0'", "TF_ENABLE_ONEDNN_OPTS is set while the benchmarks are imported"),
        (
            "sys.path.insert(0, str(pathlib.Path('vendor').absolute()))",
            "the benchmarks change the path, and typing_extensions would come from",
        ),
    ],
)
def test_benchmarks_that_would_import_something_else_import_it_themselves(tmp_path, before, reason):
    (tmp_path / "vendor").mkdir()
    shutil.copy(typing_extensions.__file__, tmp_path / "vendor")
    output, zygotes, ancestors = run(tmp_path, before)
    assert (
        f"each measuring process imports TensorFlow itself, which costs seconds and makes more launches necessary, because {reason}"
        in " ".join(output.split())
    )
    assert zygotes == ancestors


HASH = """
import hashlib

def test_fine(bench):
    bench(lambda data: hashlib.sha256(data).digest(), bytes(1 << 16))
"""
"""A step whose time does not depend on where its process has its memory, as that of a loop in Python does."""


@pytest.mark.tensorflow
def test_a_module_that_runs_an_op_while_it_is_imported_is_an_error_and_the_others_are_raced(tmp_path):
    project = Project(tmp_path)
    project.write(BENCHMARK.format(before="import tensorflow; tensorflow.ones([2])"))
    project.write(HASH, "benchmarks/test_fine.py")
    done = project.run("--against", "self")
    assert done.outcomes()["test_add"] == "error", done.output
    assert done.outcomes()["test_fine"] in ("unchanged", "inconclusive")
    assert "test_mine.py runs a TensorFlow op while it is imported" in done.reason("test_add")
    assert "move the op into the benchmark or a fixture" in done.reason("test_add")
