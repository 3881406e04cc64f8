"""Verdicts from saved times, which need the same conditions; otherwise the reason names the difference."""

import sys
from dataclasses import replace
from importlib.metadata import version

import pytest

from tests.storage.test_baselines import CASE, CONTEXT, ENVIRONMENT
from tfbench.model import Case, Outcome, Run, Sample
from tfbench.policy import Policy
from tfbench.session.request import CaseResult
from tfbench.session.strategies import SavedTimeFilter, changed_since, code_of_saved, environment_differences
from tfbench.storage.baselines import Baseline
from tfbench.storage.history import SessionRecord

CODED = replace(CASE, source="abc")


def sample(floor, case=CODED, **facts):
    return Sample(case, tuple(Run((floor, floor * 1.2), 10, {"first_call": 0.1, **facts}) for _ in range(6)))


SAVED = Baseline(CONTEXT, {CODED.name: sample(1e-5)}, name="first", saved="2026-01-01")


def record(number, floor, **changes):
    context = replace(CONTEXT, session=f"2026-01-{number:02}", tree=f"tree{number}", **changes)
    return SessionRecord(context, {CODED.name: (floor,) * 6}, {CODED.name: CODED.source})


STEADY = [record(number, 1e-5 * (1 + 0.001 * (number % 3))) for number in range(2, 9)]


def judged(now=1e-5, known=STEADY, saved=SAVED, environment=ENVIRONMENT, policy=None, case=CODED, **facts):
    time_filter = SavedTimeFilter(saved, known, environment, policy or Policy(), 1, live=False, unmade=None)
    return time_filter.evaluate(case, sample(now, case, **facts), 2.0)


def test_a_time_within_the_spread_of_sessions_is_unchanged():
    found = judged()
    assert (found.outcome, found.reason.code) == (Outcome.UNCHANGED, "saved-times")
    assert (found.launches, found.rounds, found.wall_seconds) == (6, 12, 2.0)


def test_a_gpu_at_another_clock_is_incomparable():
    at_1980 = replace(SAVED, samples={CODED.name: sample(1e-5, gpu_clock=1980.0)})
    found = judged(1.3e-5, saved=at_1980, gpu_clock=1410.0)
    assert (found.outcome, found.reason.code) == (Outcome.INCOMPARABLE, "other-clock")
    assert "with the GPU at 1980 MHz, and now it runs at 1410 MHz" in found.reason.message
    assert judged(1e-5, saved=at_1980, gpu_clock=2550.0).reason.code == "other-clock"
    assert judged(1.3e-5, saved=at_1980, gpu_clock=1950.0).outcome is Outcome.REGRESSED
    assert judged(1.3e-5, saved=at_1980).outcome is Outcome.REGRESSED  # no GPU was watched now


def test_times_with_another_state_of_the_cache_are_incomparable():
    cold = replace(SAVED, samples={CODED.name: sample(1e-5, cache="cold")})
    assert judged(1.3e-5, saved=cold).reason.code == "other-cache"
    found = judged(1.3e-5, saved=cold, cache="cold")
    assert found.outcome is Outcome.REGRESSED
    assert found.reason.message.endswith("; cold cache")


@pytest.mark.parametrize(
    ("before", "now", "code"),
    [
        ({"beside": 1e-6}, {"beside": 1.1e-6}, "saved-times"),
        ({"beside": 1e-6}, {"beside": 3e-6}, "work-beside"),
        ({}, {"beside": 3e-6}, "work-beside"),
        ({"beside": 3e-6}, {}, "saved-times"),
        ({"beside": 1e-6}, {"beside": 1e-6, "restless": True}, "restless"),
    ],
)
def test_work_beside_the_calls_hides_no_slowdown_from_saved_times(before, now, code):
    found = judged(saved=replace(SAVED, samples={CODED.name: sample(1e-5, **before)}), **now)
    assert found.reason.code == code
    assert found.outcome is (Outcome.UNCHANGED if code == "saved-times" else Outcome.INCONCLUSIVE)


def test_work_beside_the_calls_of_the_median_launch_counts_by_the_thresholds_of_the_outcome():
    faster = judged(0.9e-5)
    found = judged(0.9e-5, beside=1.43e-6)  # 3% slower with the work
    assert (faster.outcome, found.outcome) == (Outcome.IMPROVED, Outcome.INCONCLUSIVE)
    assert found.reason.code == "work-beside"
    usual = sample(1e-5)
    busy = replace(usual, runs=(*usual.runs[1:], sample(1e-5, beside=1e-5).runs[0]))
    time_filter = SavedTimeFilter(SAVED, STEADY, ENVIRONMENT, Policy(), 1, live=False, unmade=None)
    assert time_filter.evaluate(CODED, busy, 2.0).outcome is Outcome.UNCHANGED


@pytest.mark.parametrize(
    ("before", "now", "code"),
    [
        ({}, {"collections": 35.0}, "more-collections"),
        ({"collections": 0.0}, {}, "more-collections"),
        ({"collections": 35.0}, {}, "saved-times"),
        ({}, {"collections": 0.0}, "saved-times"),
        ({}, {"set_late": ["TF_X=0"]}, "set-late"),
        ({"set_late": ["TF_X=0"]}, {}, "set-late"),
        ({"set_late": ["TF_X=0"]}, {"set_late": ["TF_X=0"]}, "saved-times"),
    ],
)
def test_settings_of_which_times_do_not_show_the_effect_pass_no_saved_times(before, now, code):
    saved = replace(SAVED, samples={CODED.name: sample(1e-5, **before)})
    found = judged(saved=saved, **now)
    assert found.reason.code == code
    assert found.outcome is (Outcome.UNCHANGED if code == "saved-times" else Outcome.INCONCLUSIVE)
    assert judged(1.3e-5, saved=saved, **now).outcome is Outcome.REGRESSED


def test_calls_that_trace_a_function_again_do_not_pass_by_saved_times_either():
    retraced = replace(SAVED, samples={CODED.name: sample(1e-5, retraced=True)})
    for saved in (SAVED, retraced):
        found = judged(saved=saved, retraced=True)
        assert (found.outcome, found.reason.code) == (Outcome.INCONCLUSIVE, "retraced")
        assert judged(1.3e-5, saved=saved, retraced=True).outcome is Outcome.REGRESSED
    assert judged(saved=retraced).outcome is Outcome.UNCHANGED


@pytest.mark.parametrize(
    ("scatter", "now", "beside", "code"),
    [
        (0.008, 1.025e-5, 1.025e-6, "saved-times"),
        (0.008, 1.025e-5, 1.6e-6, "work-beside"),
        (0.018, 1e-5, 1.6e-6, "saved-times"),  # 5.0% more with the work
        (0.018, 1e-5, 1.63e-6, "work-beside"),
    ],
)
def test_a_slower_time_within_the_spread_is_not_blamed_on_work_beside_the_calls(scatter, now, beside, code):
    sessions = [record(number, 1e-5 * (1 + scatter * (number % 3 - 1))) for number in range(2, 20)]
    saved = replace(SAVED, samples={CODED.name: sample(1e-5, beside=1e-6)})
    found = judged(now, sessions, saved, beside=beside)
    assert found.reason.code == code
    assert found.outcome is (Outcome.UNCHANGED if code == "saved-times" else Outcome.INCONCLUSIVE)


def test_a_slower_time_outside_the_spread_has_regressed():
    assert judged(1.3e-5).outcome is Outcome.REGRESSED


def test_a_case_is_judged_by_the_thresholds_that_it_was_saved_with_if_they_are_stricter():
    loose = replace(CODED, thresholds=(("minimum_effect", 0.45), ("tolerance", 0.9)))
    known = replace(SAVED, samples={CODED.name: sample(1e-5, loose)})
    assert judged(1.3e-5, case=loose).outcome is judged(1.3e-5, saved=known).outcome is Outcome.REGRESSED
    assert judged(1.3e-5, case=loose, saved=known).outcome is Outcome.UNCHANGED


def test_slow_calls_of_the_new_session_alone_are_not_unchanged():
    slow = Sample(CODED, tuple(Run((1e-5, 2e-5), 10) for _ in range(6)))
    time_filter = SavedTimeFilter(SAVED, STEADY, ENVIRONMENT, Policy(), 1, live=False, unmade=None)
    assert time_filter.evaluate(CODED, slow, 2.0).outcome is Outcome.INCONCLUSIVE
    assert judged(saved=replace(SAVED, samples={CODED.name: slow})).outcome is Outcome.UNCHANGED


def test_all_cases_of_the_run_share_its_alpha():
    few, many = (
        SavedTimeFilter(SAVED, STEADY, ENVIRONMENT, Policy(), cases, False, None).evaluate(CODED, sample(1.3e-5), 2.0)
        for cases in (1, 1000)
    )
    assert many.ratio.low < few.ratio.low


def test_a_result_that_no_race_of_variants_measured_is_settled_already():
    time_filter = SavedTimeFilter(SAVED, STEADY, ENVIRONMENT, Policy(), 1, live=True, unmade=None)
    result = CaseResult(CODED, judged(2e-5), sample=sample(2e-5))
    assert time_filter.settle([result]) == ([result], [])


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"machine": {"processor": "y"}}, "processor x there, y here"),
        ({"threads": 2}, "threads 1 there, 2 here"),
        ({"settings": {"TF_ENABLE_ONEDNN_OPTS": "0"}}, "TF_ENABLE_ONEDNN_OPTS not set there, 0 here"),
        ({"settings": {"NVIDIA_TF32_OVERRIDE": "0"}}, "NVIDIA_TF32_OVERRIDE not set there, 0 here"),
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
    known = replace(SAVED.samples[CODED.name], case=replace(CODED, scope="abc"))
    environment = replace(SAVED.environment, python="3.11.7")
    saved = replace(SAVED, samples={CODED.name: known}, context=replace(SAVED.context, environment=environment))
    now = replace(CODED, scope="def")
    monkeypatch.setattr("platform.python_version", lambda: "3.11.9")
    assert changed_since(saved, now)
    assert not changed_since(saved, replace(now, scope="abc", source="def"))
    assert not changed_since(SAVED, now), "an old file has no digest to compare"
    monkeypatch.setattr("platform.python_version", lambda: "3.12.1")
    assert not changed_since(saved, now), "another Python writes the same code in another way"


@pytest.mark.parametrize("change", [{"way": "sides"}, {"policy": "quick"}])
def test_a_baseline_measured_by_another_method_is_inconclusive(change):
    found = judged(saved=replace(SAVED, context=replace(CONTEXT, **change)))
    assert (found.outcome, found.reason.code) == (Outcome.INCONCLUSIVE, "other-way")


@pytest.mark.parametrize(
    "strange",
    [
        lambda one: replace(one, context=replace(one.context, way="sides")),
        lambda one: replace(one, context=replace(one.context, policy="quick")),
        lambda one: replace(one, context=replace(one.context, environment=replace(ENVIRONMENT, threads=4))),
        lambda one: replace(one, context=replace(one.context, session=CONTEXT.session)),
        lambda one: replace(one, sources={CODED.name: "other"}),
        lambda one: replace(one, floors={}),
    ],
)
def test_incomparable_sessions_are_ignored(strange):
    found = judged(known=list(map(strange, STEADY)))
    assert found.reason.code == "few-sessions"
    assert "1 comparable session of" in found.reason.message


def test_sessions_of_the_baselines_own_code_narrow_the_interval():
    same = [replace(one, context=replace(one.context, tree=CONTEXT.tree)) for one in STEADY]

    def width(known):
        ratio = judged(known=known).ratio
        return ratio.high / ratio.low

    assert width(same) < width(STEADY)
    saved = replace(SAVED, context=replace(CONTEXT, tree=""))  # no checkout, so their code is unknown
    unknown = [replace(one, context=replace(one.context, tree="")) for one in STEADY]
    assert judged(saved=saved, known=unknown).ratio == judged(saved=saved).ratio


def test_sessions_of_another_case_do_not_count():
    other = Case("b/test_x.py::test_y", "test_y", "b/test_x.py::test_y")
    saved = Baseline(CONTEXT, {other.name: sample(1e-5, other)}, name="first")
    assert judged(saved=saved, case=other).reason.code == "few-sessions"


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
