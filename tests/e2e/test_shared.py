"""Shared set-ups of two commits."""

MINE = """
    import models
    from tests.fakes.steps import taking

    def build(folder):
        (folder / "size.txt").write_text(str(models.SIZE))

    def test_mine(bench, shared):
        assert (shared(build) / "size.txt").read_text() == str(models.SIZE)
        bench(taking(bench, 50e-6))
"""


def test_each_side_has_a_set_up_that_its_own_code_has_built(project):
    project.write(MINE)
    project.write("SIZE = 1\n", "models.py")
    project.write("[pytest]\npythonpath = .\n", "pytest.ini")
    project.commit("before")
    project.write("SIZE = 2\n", "models.py")
    done = project.run("--against", "git:HEAD")
    assert done.outcomes()["test_mine"] in ("unchanged", "inconclusive"), done.output
    assert len(list((project.root / ".tfbench" / "made").glob("build-*/size.txt"))) == 2
