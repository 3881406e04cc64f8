"""The end of a run."""

import signal
from types import SimpleNamespace

import pytest

from tfbench.plugin.runner import Runner


def test_sigterm_can_end_the_races_for_the_mean_of_all_cases_and_not_the_report():
    before, seen = signal.getsignal(signal.SIGTERM), []

    def conclude():
        seen.append(signal.getsignal(signal.SIGTERM))
        raise KeyError("the end of this test")

    judge_suite = lambda: seen.append(signal.getsignal(signal.SIGTERM))  # noqa: E731
    runner = Runner.__new__(Runner)
    runner._before, runner._session = before, SimpleNamespace(judge_suite=judge_suite, conclude=conclude)
    try:
        with pytest.raises(KeyError):
            runner.finish(0)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert seen == [before, signal.SIG_IGN]


@pytest.mark.parametrize(
    ("error", "interrupted"),
    [(KeyboardInterrupt(), True), (pytest.exit.Exception("enough"), True), (pytest.Session.Interrupted("-x"), False)],
)
def test_an_interruption_is_noted_wherever_pytest_is(error, interrupted):
    runner = Runner.__new__(Runner)
    runner._session = SimpleNamespace(interrupted=False)
    runner.pytest_keyboard_interrupt(SimpleNamespace(value=error))
    assert runner._session.interrupted is interrupted
