"""Functions that slow every call down are found before a step is timed."""

import sys

import pytest

from tfbench.protocol import TRACED_WORKERS
from tfbench.worker.bench import tracer


@pytest.fixture(autouse=True)
def untraced(monkeypatch):
    monkeypatch.delenv(TRACED_WORKERS, raising=False)
    before = sys.gettrace()
    sys.settrace(None)
    yield
    sys.settrace(before)


@pytest.mark.parametrize(("turn", "kind"), [(sys.settrace, "trace"), (sys.setprofile, "profile")])
def test_a_trace_or_profile_function_is_named(turn, kind):
    assert tracer() == ""
    turn(lambda *_: None)
    try:
        found = tracer()
    finally:
        turn(None)
    assert found == f"a {kind} function of builtins.function"


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring came with Python 3.12")
def test_a_monitoring_tool_is_named():
    sys.monitoring.use_tool_id(3, "mine")
    try:
        assert tracer() == ""
        sys.monitoring.set_events(3, sys.monitoring.events.LINE)
        assert tracer() == "the monitoring tool mine"
    finally:
        sys.monitoring.free_tool_id(3)
