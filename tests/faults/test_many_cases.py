"""Load: the controller's cost and memory per case. A module of its own, which pytest-xdist runs beside the others."""

from __future__ import annotations

import json
import subprocess
from itertools import pairwise

import pytest

from tests.fakes import measured, worker
from tests.faults.processes import Run
from tests.length import WHOLE

CASES = 5000 if WHOLE else 250
MANY = """
    import pytest

    @pytest.mark.parametrize("number", range({cases}))
    def test_one(bench, number):
        bench(sum, [1])
"""


@pytest.mark.chaos
def test_the_controllers_cost_and_memory_per_case_do_not_grow(tmp_path, record_property):
    run = Run(tmp_path)
    (tmp_path / "conftest.py").unlink()
    run.write(MANY.format(cases=CASES))
    names = [f"benchmarks/test_mine.py::test_one[{number}]" for number in range(CASES)]
    interpreter = worker.install(tmp_path, cases={name: {} for name in names})
    notes = tmp_path / "notes"
    extra = {measured.INTERPRETER: interpreter, measured.NOTES: str(notes), measured.EVERY: str(CASES // 5)}
    done = subprocess.run(
        run.command("--benchmark", "-q", "-p", "tests.fakes.measured"),
        cwd=tmp_path, env={**run.environment(), **extra}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    assert f"{CASES} passed" in done.stdout
    rows = [json.loads(line) for line in notes.read_text().splitlines()]
    milliseconds, kilobytes = [], []
    for before, after in pairwise(rows):
        cases = after["cases"] - before["cases"]
        milliseconds.append(1e3 * (after["seconds"] - before["seconds"]) / cases)
        kilobytes.append((after["bytes"] - before["bytes"]) / 1e3 / cases)
        text = f"{milliseconds[-1]:.1f} ms of processor time and {kilobytes[-1]:.0f} kB per case"
        record_property(
            "figure", f"controller, up to case {after['cases']}: {text}, {after['descriptors']} descriptors"
        )
    # The first part includes the first import of much code.
    assert milliseconds[-1] < 1.5 * milliseconds[1]
    # A case leaves its samples, twice: pytest-benchmark has its own. Nothing else is kept.
    assert max(kilobytes[1:]) < 60
    assert max(row["descriptors"] for row in rows) - rows[1]["descriptors"] <= 2
    run.check_clean()
