"""Run a benchmark without tfbench's workers: ``python -m benchmarks.harness.bare FILE TEST [VARIANT]`` prints JSON.

``python -m benchmarks.harness.bare --pytest CASE`` runs it as a test of plain pytest.
"""

import importlib
import json
import os
import sys
import time
from statistics import quantiles
from types import SimpleNamespace

import pytest

from tfbench.worker.isolation import mallinfo
from tfbench.worker.probes import HostPeak


def bench(step, *arguments, **keywords):
    for _ in range(2):
        step(*arguments)
    PEAK.mark()
    began, calls = time.perf_counter(), 0
    while calls < 3 or time.perf_counter() - began < 0.5:
        step(*arguments)
        calls += 1
    per_block = max(1, int(3e-4 * calls / (time.perf_counter() - began)))
    seconds, until = [], time.perf_counter() + 1.5
    while len(seconds) < 5 or time.perf_counter() < until:
        start = time.perf_counter()
        for _ in range(per_block):
            step(*arguments)
        seconds.append((time.perf_counter() - start) / per_block)
    windows, calls, used = [], max(10, min(100, int(0.2 / quantiles(seconds)[0]))), mallinfo()
    for _ in range(4):
        before = used().uordblks + used().hblkhd
        for _ in range(calls):
            step(*arguments)
        windows.append((used().uordblks + used().hblkhd - before) / calls)
    print(json.dumps({"seconds": quantiles(seconds)[0], "peak": PEAK.bytes, "leaked": max(0.0, min(windows))}))


class Plain:
    """A plugin of pytest with the fixtures of the suite, which times steps as above."""

    @pytest.fixture
    def bench(self, request):
        global PEAK
        PEAK = HostPeak()
        for one in getattr(request.node, "callspec", SimpleNamespace(params={})).params.values():
            one.enter()
        return bench


if __name__ == "__main__":
    if sys.argv[1] == "--pytest":
        options = ("no:tfbench.plugin", "no:benchmark", "no:cacheprovider", "no:warnings")
        words = [word for one in options for word in ("-p", one)]
        sys.exit(pytest.main(["-c", os.devnull, "--rootdir=.", "--noconftest", *words, "-qs", sys.argv[2]], [Plain()]))
    file, test, *variant = sys.argv[1:]
    function = getattr(importlib.import_module(file.removesuffix(".py").replace("/", ".")), test)
    given = [
        one.values[0]
        for mark in getattr(function, "pytestmark", ())
        if mark.name == "parametrize"
        for one in mark.args[1]
        if one.id in variant
    ]
    PEAK = HostPeak()
    for one in given:
        one.enter()
    function(bench, *given)
