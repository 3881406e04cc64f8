"""``tfbench bisect`` over the commits of a real repository, with real processes."""

import json

import pytest

BENCHMARK = """
    from tests.fakes.steps import taking
    from work import WORK


    def test_work(bench):
        bench(taking(bench, WORK * 1e-8))


    def test_same(bench):
        bench(taking(bench, 1e-5))
"""


@pytest.fixture
def repository(project):
    """Six commits: the fourth is slower by half, the third cannot be imported."""
    project.write("[pytest]\npythonpath = .\n", "pytest.ini")
    project.write(BENCHMARK)
    subjects = ["the first", "a page", "broken", "slower", "mended", "another page"]
    for number, subject in enumerate(subjects):
        work = 1000 if number < 3 else 1500
        project.write("import nothing_of_that_name" if subject == "broken" else f"WORK = {work}\n", "work.py")
        project.write(f"{subject}\n", "page.txt")
        project.commit(subject)
    return project


@pytest.mark.slow
def test_a_bisection_finds_the_commit_where_a_case_got_slower(repository):
    done = repository.tfbench("bisect", "--good", "HEAD~5", "--bad", "HEAD", "-k", "work or same", "--report-json", "b.json",
                              "--policy", "quick")  # fmt: skip
    assert done.returncode == 3, done.stdout + done.stderr  # whether it is the broken one or the next, nobody can tell
    reported = json.loads((repository.root / "b.json").read_text())
    assert reported["schema"] == "tfbench-bisect/1"
    about = {point["label"]: point["about"] for point in reported["points"]}
    assert list(about.values()) == ["the first", "a page", "broken", "slower", "mended", "another page"]
    work, same = (next(case for case in reported["cases"] if case["case"].endswith(name)) for name in ("work", "same"))
    assert about[work["last_good"]] == "a page"
    assert [about[label] for label in work["suspects"]] == ["broken", "slower"]
    broken = next(step for step in work["steps"] if about[step["point"]] == "broken")
    assert broken["outcome"] is None
    assert "cannot be imported" in broken["reason"]
    assert len(work["steps"]) <= 1 + 3
    assert same["first_bad"] is None
    assert len(same["steps"]) == 1

    done = repository.tfbench("bisect", "--good", "git:HEAD~2", "--bad", "HEAD", "benchmarks/test_mine.py::test_work",
                              "--policy", "quick")  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "is not slower than" in done.stdout


FUNCTIONS = """
    import os
    import time


    def prepare(seconds):
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            pass


    def test_work(bench):
        def step():
            prepare(0.003 if os.environ["MODE"] == "slow" else 0.001)
            return 1

        bench(step)


    def keep(kept):
        kept += [bytearray(1000) for _ in range(100_000 if os.environ["MODE"] == "slow" else 30_000)]
        return kept


    def test_memory(bench):
        bench.once(keep, [])
"""


@pytest.mark.slow
def test_two_settings_are_bisected_and_their_causes_named(project):
    project.write(FUNCTIONS)
    ends = ("--good", "env:MODE=fast", "--bad", "env:MODE=slow", "--policy", "quick", "--causes")
    done = project.tfbench("bisect", *ends, "-k", "work", "--report-json", "b.json")
    assert done.returncode == 0, done.stdout + done.stderr
    case = json.loads((project.root / "b.json").read_text())["cases"][0]
    assert case["first_bad"] == "env:MODE=slow"
    assert "prepare takes" in case["causes"][0], case["causes"]

    done = project.tfbench("bisect", *ends, "-k", "memory", "--metric", "peak_host_memory", "--report-json", "b.json")
    assert done.returncode == 0, done.stdout + done.stderr
    case = json.loads((project.root / "b.json").read_text())["cases"][0]
    assert case["steps"][0]["ratio"]["low"] > 2
    assert case["causes"][0].startswith("memory held by Python objects: ")
