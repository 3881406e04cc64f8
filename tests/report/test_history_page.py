"""The size of a history's page; what it shows is tested in a browser and with `tfbench history --html`."""

import math
import re

import numpy as np
import pytest

from tests.fakes.histories import ANCHOR, commit, session
from tfbench.model import RATIO, Series, SeriesPoint, SeriesRun
from tfbench.report.trends import render_history
from tfbench.stats.change_points import Trend, TrendState

RUNS = [SeriesRun(session(number), commit(number), False, (), "tensorflow 2.21.0", "x") for number in range(100)]


def steady(number, logs):
    """Return a case with a ratio in every run, and the interval that a history would hold."""
    points = [
        SeriesPoint(run, math.exp(log), math.exp(log - 0.01), math.exp(log + 0.01))
        for run, log in zip(RUNS, logs, strict=True)
    ]
    series = Series(f"b/test_x.py::test_x[size={number}]", RATIO, ANCHOR.label, "", tuple(points))
    return [Trend(series, 0, (), 0, "", None, TrendState.STEADY)]


@pytest.mark.slow
def test_ten_thousand_series_take_three_megabytes(capsys):
    values = np.random.default_rng(0).normal(0, 0.005, (10_000, len(RUNS)))
    page = render_history([steady(number, logs) for number, logs in enumerate(values)], len(RUNS), [])
    data = sum(len(one) for one in re.findall(r'id="data-[^"]*">([^<]*)<', page))
    with capsys.disabled():
        print(f"\n10,000 series x 100 runs: {data / 1e6:.2f} MB of data, page {len(page) / 1e6:.2f} MB")
    assert data < 3e6
