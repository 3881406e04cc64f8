"""A command that cannot do what it is asked says so, with its exit code and without a trace."""

import pytest

from tests.e2e.project import Project

BENCHMARK = """
    from tfbench import Axis, Level, across

    @across(Axis("fusion", Level("fused"), Level("unfused")))
    def test_dense(bench, variant):
        bench(sum, [1])
"""
FUSED, UNFUSED = "test_dense[fusion=fused]", "test_dense[fusion=unfused]"
REFUSED = [
    (2, "versions self", "give two or more versions"),
    (2, "versions 1.2", "taken for versions, as no file has such a name: 1.2"),
    (2, "versions self self", "give two or more versions"),
    (2, "versions self nonsense", "is not understood"),
    (
        2,
        "versions self keras env:A=1",
        "keras is a version, and a file or folder here; write ./keras for the file or folder",
    ),
    (2, "versions self env:A=1 -k nothing", "no benchmark is selected"),
    (2, "versions self env:A=1 --min-slowdown 5", "a smallest slowdown of 5: give a fraction between 0 and 0.5"),
    (2, "bisect --good HEAD --bad HEAD~1", "no ancestor of"),
    (2, "bisect --good HEAD~1 --bad 2.20.0", "give two of a kind"),
    (2, "bisect --good HEAD~1 --bad HEAD --metric colour", "there are time, first_call, peak_host_memory"),
    (2, "bisect --good HEAD~1 --bad HEAD -k nothing", "no benchmark is selected"),
    (5, "bisect --good nowhere --bad HEAD", "git:nowhere: no such revision"),
    (2, f"explain {FUSED}", "give --against SPEC or a second case to compare with, or --profile DIR to read"),
    (2, f"explain {FUSED} {UNFUSED} --repro x", "--repro races two interpreters"),
    (2, "explain test_other --against self", "no benchmark matches 'test_other'"),
    (2, "explain test_dense --against self", "'test_dense' matches 2 benchmarks: benchmarks/"),
    (2, f"explain {FUSED} --against sometimes", "'sometimes' is not understood"),
    (2, "explain x --against self --paths nowhere", "pytest could not collect the benchmarks"),
    (2, "explain x --against self -k a=b", "benchmarks:\nERROR: Wrong expression passed to '-k': a=b"),
    (2, "fleet plan", "a fleet races two sides: give --against SPEC"),
    (5, "fleet run nothing", "nothing is no folder of a fleet"),
]


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """Two commits, and a folder whose name is that of a package."""
    project = Project(tmp_path_factory.mktemp("repository"))
    project.write(BENCHMARK)
    for subject in ("one", "two"):
        project.write(subject, "page.txt")
        project.commit(subject)
    (project.root / "keras").mkdir()
    return project


@pytest.mark.parametrize(("code", "words", "said"), REFUSED)
def test_a_command_that_cannot_do_what_it_is_asked_says_so(repository, code, words, said):
    done = repository.tfbench(*words.split())
    assert (done.returncode, said in done.stderr, "Traceback" in done.stderr) == (code, True, False), done
