"""What lies around the benchmarks: shards without cases, settings of pytest, checkouts of others, roots of their own."""

import os

import pytest

from tests.e2e.project import Project

pytestmark = pytest.mark.slow

ONE = "from tests.fakes.steps import taking\n\n\ndef test_mine(bench):\n    bench(taking(bench, 5e-5))\n"


def test_a_shard_without_cases_ends_well_and_merges(project):
    project.write(ONE)
    reports = []
    for index in (1, 2):
        done = project.run("--against", "self", "--shard", f"{index}/2")
        assert done.code == 0, done.output
        reports.append(done.report["due"])
        (project.root / "report.json").rename(project.root / f"{index}.json")
    assert sorted(reports) == [[], ["benchmarks/test_mine.py::test_mine"]]
    merged = project.tfbench("gate", "1.json", "2.json", "--output", "whole")
    assert merged.returncode == 0, merged.stderr
    assert project.tfbench("gate", "whole/report.json").returncode == 0
    assert project.run("--against", "self", "-k", "nothing", "--shard", "1/2").code == 5  # no case in any shard


ODD = os.fsdecode(b"caf\xe9")
"""A file name that is not UTF-8."""


def test_no_file_name_of_a_checkout_has_to_be_utf_8(tmp_path):
    project = Project(tmp_path / ODD)
    raises = f"\n\ndef test_raises(bench):\n    raise ValueError(__import__('os').fsdecode({os.fsencode(ODD)!r}))\n"
    project.write(ONE + raises)
    for name in ("data.txt", "code.py"):
        project.write("", ODD + name)
    project.commit("one")
    for name in ("new.txt", "new.py"):
        project.write("", ODD + name)
    files = ("--report-html=r.html", "--report-markdown=r.md")
    fine = ("-k", "not raises")
    for options in (("--against", "git:HEAD", *files), ("--against", "git:HEAD", "--resume", "--changed-only"),
                    ("--against", "self", *fine, "--save-baseline", "main"), ("--baseline", "main", *fine)):  # fmt: skip
        done = project.run(*options)
        errors = {} if "-k" in options else {"test_raises": "error"}
        spared = {"new"} if "--changed-only" in options else set()  # unless the sample has drawn it
        assert done.outcomes() | {"test_mine": ""} == {"test_mine": "", **errors}, done.output
        assert done.outcomes()["test_mine"] in {"unchanged", *spared}
        gate = project.tfbench("gate", "report.json")
        assert gate.returncode == (5 if errors else 0), gate.stderr
        if errors:
            assert done.reason("test_raises").endswith("ValueError: caf?")
