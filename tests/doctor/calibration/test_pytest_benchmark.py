"""pytest-benchmark's own way, run for real: what it saves, what a slowdown adds, what a failure says."""

from pathlib import Path

import pytest

from tfbench import worker
from tfbench.doctor.calibration import measure
from tfbench.errors import SideError

WORKLOADS = Path(worker.__file__).parent / "workloads" / "test_saved.py"
PLAIN = """
import pytest

@pytest.mark.parametrize("name", ["short", "long"])
def test_step(benchmark, name):
    benchmark(sum, range(100 if name == "short" else 3000))
"""


def test_every_workload_has_its_statistics(tmp_path):
    file = tmp_path / "test_plain.py"
    file.write_text(PLAIN)
    run = measure(file, 0.0)
    assert set(run.stats) == {"short", "long"}
    assert run.stats["short"]["median"] < run.stats["long"]["median"]
    assert run.slowdown == 0
    assert run.seconds > 0


def test_a_run_that_fails_is_an_error_with_its_last_lines(tmp_path):
    file = tmp_path / "test_plain.py"
    file.write_text("def test_step(benchmark):\n    assert 1 == 2, 'the reason'\n")
    with pytest.raises(SideError, match="the reason"):
        measure(file, 0.0)


@pytest.mark.tensorflow
def test_the_fixed_workloads_run_with_a_slowdown():
    run = measure(WORKLOADS, 0.5)
    assert "eager_add" in run.stats
    assert all(0 < one["median"] < 1 for one in run.stats.values())
    assert run.slowdown == 0.5
