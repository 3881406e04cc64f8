"""Comparison of two files: an interval if the files allow one, otherwise the reason."""

import io
import math
import random
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console
from scipy import stats

from tests.fakes.report import complete
from tests.report.test_render import verdict
from tfbench.compare import Timing, contrast, contrasts, verdicts
from tfbench.model import Outcome, ReasonCode


def launches(center, number=6, rounds=50, deviation=0.01, seed=0):
    rng = random.Random(f"{seed}/{center}")
    found = []
    for _ in range(number):
        own = center * (1 + rng.gauss(0, deviation))
        found.append(tuple(own * (1 + rng.expovariate(50)) for _ in range(rounds)))
    return tuple(found)


def timing(center, **kw):
    times = launches(center, **kw)
    return Timing(float(np.median([s for launch in times for s in launch])), times)


def test_several_launches_are_the_units():
    first, second = timing(1.0), timing(1.1)
    found = contrast("x", first, second)
    logs = [[math.log(float(np.median(launch))) for launch in one.launches] for one in (second, first)]
    reference = stats.ttest_ind(*logs, equal_var=False).confidence_interval(0.95)
    assert math.log(found.interval.low) == pytest.approx(reference.low)
    assert math.log(found.interval.high) == pytest.approx(reference.high)
    assert found.reason.code == ReasonCode.STANDS_OUT
    assert "slower, beyond the scatter of launches" in found.reason.message


def test_the_rounds_of_one_process_are_batched():
    found = contrast("x", timing(1.0, number=1, rounds=200), timing(1.0, number=1, rounds=200, seed=1))
    assert found.interval is not None
    assert "rounds of one process" in found.reason.message


def test_a_drift_within_one_process_widens_the_interval():
    steady = Timing(1.0, (tuple(1 + 0.001 * (n % 7) for n in range(200)),))
    drifting = Timing(1.0, (tuple(1 + 0.001 * (n % 7) + 0.0005 * n for n in range(200)),))
    calm, wide = (contrast("x", steady, other).interval for other in (steady, drifting))
    assert math.log(wide.high / wide.low) > 10 * math.log(calm.high / calm.low)


def test_without_raw_times_there_is_no_interval():
    found = contrast("x", Timing(1.0), timing(1.2))
    assert found.interval is None
    assert found.ratio == pytest.approx(1.2, rel=0.05)
    assert "no raw times in the file" in found.reason.message


def test_too_few_rounds_have_no_interval():
    assert "7 rounds are too few" in contrast("x", timing(1.0, number=1, rounds=7), timing(1.0)).reason.message


@pytest.mark.parametrize(("first", "second", "where"), [(None, timing(1.0), "second"), (timing(1.0), None, "first")])
def test_a_case_of_one_file_only_says_so(first, second, where):
    assert contrast("x", first, second).reason.message == f"in the {where} file only"


def test_constant_times_have_an_interval_without_width():
    same = Timing(1.0, ((1.0,) * 20,) * 3)
    found = contrast("x", same, same)
    assert (found.interval.low, found.interval.high) == (1.0, 1.0)
    assert found.as_json()["interval"]["center"] == 1.0


NAME = "benchmarks/test_distribution.py::test_all_reduce_of_workers[replicas=2,compiler=xla,precision=mixed_float16]"


def test_tables_of_long_names_are_readable_on_80_columns():
    screen = Console(file=io.StringIO(), width=80)
    row = contrast(NAME, timing(1.0), timing(1.5, seed=1))
    report = complete([replace(verdict(NAME, Outcome.REGRESSED), ratio=row.interval)])
    screen.print(contrasts([row], True), verdicts(report, report))
    lines = screen.file.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert sum("(1." in line and " to 1." in line for line in lines) == 2, lines
    assert len(lines) < 40
