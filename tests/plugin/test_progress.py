"""The progress bar on a pseudo-terminal, and its absence without a terminal."""

import math
import os
import select
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.fakes.race import scripted_race, sides_of, steady, variants_of
from tfbench.model import Case
from tfbench.plugin import runner
from tfbench.plugin.runner import Display, race_summary
from tfbench.policy import Policy

CASE = Case("w.py::w", "w", "w.py::w")


def progress(text, race, done, total):
    return SimpleNamespace(text=text, race=race, done=done, total=total)


@pytest.fixture
def terminal():
    """The file that a program writes to, and a function that reads the text that has reached the terminal."""
    ours, theirs = os.openpty()

    def shown():
        text = b""
        while select.select([ours], [], [], 0.2)[0]:  # the kernel delivers written text in parts, with a delay
            text += os.read(ours, 1 << 16)
        return text.decode()

    with os.fdopen(theirs, "w") as file:
        yield file, shown
    os.close(ours)


def reporter(file, isatty):
    return SimpleNamespace(_tw=SimpleNamespace(_file=file), isatty=isatty, currentfspath="somewhere")


def test_the_bar_shows_the_number_of_cases_done_and_the_current_step(terminal):
    file, shown = terminal
    display = Display(reporter(file, True))
    display(progress("b.py::test_matmul", None, 1, 4))
    assert " left" not in shown()  # the first one may be of an interrupted run
    display(progress("b.py::test_matmul: other metrics", None, 2, 4))
    display.clear()
    display.close()
    text = shown()
    assert "2/4" in text
    assert "s left" in text
    assert "test_matmul: other metrics" in text
    assert "b.py" not in text


def test_a_log_has_a_line_a_minute(terminal, monkeypatch):
    file, shown = terminal
    now = [0.0]
    monkeypatch.setattr(runner, "time", SimpleNamespace(monotonic=lambda: now[0]))
    display = Display(reporter(file, False))
    for now[0], done in ((30.0, 1), (61.0, 2), (90.0, 3), (122.0, 3)):
        display(progress("b.py::test_matmul", None, done, 4))
    display.close()
    assert shown().split("\r\n") == ["", "2/4, 62 s left  test_matmul", "", "3/4, 46 s left  test_matmul", ""]


def test_the_progress_of_a_case_that_takes_longer_than_the_policy_allows_has_its_limit():
    race, _ = scripted_race(sides_of(CASE), [steady(1e-4)] * 2, Policy(looks=(3, 30)), range(3))
    race.policy, seen = replace(race.policy, case_seconds=3.0, case_launches=60), []
    race.run(lambda race: seen.append(race_summary(race)))
    assert any("of at most 42 s" in words for words in seen), seen


def test_an_undecided_comparison_is_summarised_with_its_interval():
    policy = Policy(looks=(3, 30), hopeless=math.inf)
    race, _ = scripted_race(variants_of("plain", "fast", "slow"), [steady(1e-4, 0.1)] * 3, policy, range(3))
    seen = []
    race.run(lambda race: seen.append(race_summary(race)))
    assert any(words.startswith("launch 3/30,") and "a=" in words for words in seen), seen
