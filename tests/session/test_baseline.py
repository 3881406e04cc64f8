"""Cases of a saved baseline that did not race its side, and the differences that a reason names."""

import sys
from dataclasses import replace
from importlib.metadata import version

import pytest

from tests.fakes.report import variant
from tests.storage.test_baselines import CASE, CONTEXT, ENVIRONMENT
from tfbench.model import Outcome, Reason, Run, Sample, Verdict
from tfbench.session.request import CaseResult
from tfbench.session.strategies import (
    changed_since,
    code_of_saved,
    environment_differences,
    machine_differences,
    not_raced,
)
from tfbench.storage.baselines import Baseline

CODED = replace(CASE, source="abc")


def sample(floor, case=CODED, **facts):
    return Sample(case, tuple(Run((floor, floor * 1.2), 10, {"first_call": 0.1, **facts}) for _ in range(6)))


SAVED = Baseline(CONTEXT, {CODED.name: sample(1e-5)}, name="first", saved="2026-01-01")


def judged(now=1e-5, environment=ENVIRONMENT, case=CODED, unmade=None):
    measured = sample(now, case)
    verdict = Verdict.of(case, Outcome.NEW, Reason("no-baseline", "measured"), launches=6)
    result = CaseResult(case, verdict, sample=measured, variant_result=variant(case, "", now, None, None, 6, 12))
    differences = machine_differences(ENVIRONMENT, environment) + environment_differences(ENVIRONMENT, environment)
    return not_raced(SAVED, result, differences, unmade).verdict


@pytest.mark.parametrize("now", [1e-5, 2e-5, 5e-6])
def test_saved_times_decide_on_no_case(now):
    found = judged(now)
    assert (found.outcome, found.reason.code, found.launches) == (Outcome.INCONCLUSIVE, "saved-times", 6)
    assert found.reason.message.startswith("not raced: its fastest call took 10.0 µs when it was saved, and ")
    assert found.reason.message.endswith("race it with --replay all")
    assert judged(now, unmade=Reason("no-source", "its tree is gone")).reason.message.endswith("; its tree is gone")


def test_a_result_without_a_race_of_variants_stays_as_it_is():
    result = CaseResult(CODED, judged(), sample=sample(2e-5))
    assert not_raced(SAVED, result, [], None) is result


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"machine": {"processor": "y"}}, "processor x there, y here"),
        ({"threads": 2}, "threads 1 there, 2 here"),
        ({"settings": {"TF_ENABLE_ONEDNN_OPTS": "0"}}, "TF_ENABLE_ONEDNN_OPTS not set there, 0 here"),
        ({"packages": {"tensorflow": "2.20.0"}}, "tensorflow 2.21.0 there, 2.20.0 here"),
        ({"python": "3.12.1"}, "Python 3.11.7 there, 3.12.1 here"),
        ({"python": "3.11.9"}, "Python 3.11.7 there, 3.11.9 here"),
        ({"machine": {}}, "processor x there, unknown here"),
    ],
)
def test_another_environment_is_incomparable_and_the_reason_names_the_difference(change, named):
    found = judged(environment=replace(ENVIRONMENT, **change))
    assert found.outcome is Outcome.INCOMPARABLE
    assert found.reason.message.count(named) == 1


def test_a_saved_package_that_is_installed_here_is_no_difference_though_this_run_does_not_list_it():
    here = replace(ENVIRONMENT, executable=sys.executable)
    saved = replace(here, packages={**here.packages, "numpy": version("numpy"), "gone": "1.0"})
    assert environment_differences(saved, here) == ["gone 1.0 there, not installed here"]


def test_a_changed_benchmark_is_incomparable():
    other = replace(CODED, source="def")
    assert changed_since(SAVED, other)
    found = judged(case=other)
    assert (found.outcome, found.reason.code) == (Outcome.INCOMPARABLE, "benchmark-changed")
    assert not changed_since(SAVED, replace(CODED, source=""))


def test_a_benchmark_is_changed_by_what_it_uses_in_the_suite(monkeypatch):
    known = replace(SAVED.samples[CODED.name], case=replace(CODED, file="abc"))
    environment = replace(SAVED.environment, python="3.11.7")
    saved = replace(SAVED, samples={CODED.name: known}, context=replace(SAVED.context, environment=environment))
    now = replace(CODED, file="def")
    monkeypatch.setattr("platform.python_version", lambda: "3.11.9")
    assert changed_since(saved, now)
    assert not changed_since(SAVED, now), "an old file has no digest to compare"
    monkeypatch.setattr("platform.python_version", lambda: "3.12.1")
    assert not changed_since(saved, now), "another Python writes the same code in another way"


def test_the_code_of_a_baseline_is_its_tree_or_the_run_that_saved_it():
    def of(**changes):
        environment = replace(ENVIRONMENT, commit="1" * 40, dirty=True)
        return code_of_saved(
            replace(SAVED, saved="2026-01-02", context=replace(CONTEXT, environment=environment, **changes))
        )

    found = of(tree="2" * 40)
    assert (found.tree, found.commit, found.dirty) == ("2" * 40, "1" * 40, True)
    assert of(tree="", session="2026-a").tree == "session:2026-a"
    assert of(tree="", session="").tree == "session:2026-01-02"
