"""What each strategy races, with sides that start at once and races that only record their entrants."""

import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.fakes.report import judged, variant
from tests.session.test_baseline import CODED, SAVED, sample
from tests.storage.test_baselines import ENVIRONMENT
from tfbench.errors import SideError
from tfbench.model import Case, MetricValues, Note, Outcome, Reason, ReasonCode, Verdict, because
from tfbench.policy import preset
from tfbench.race.timer import Stopwatch
from tfbench.session import strategies
from tfbench.session.request import CaseResult, missing
from tfbench.session.strategies import (
    LiveSideStrategy,
    SavedBaselineStrategy,
    Strategy,
    baseline_side,
    recreate_side,
    source_of,
)
from tfbench.sides.counterparts import Listing, Selection
from tfbench.sides.source_tree import Snapshot
from tfbench.sides.spec import Side
from tfbench.sides.yardstick import JudgedTree

CONTENDER, RIVAL = (Side(name, "python", Path("/")) for name in ("contender", "baseline"))
OTHER = Case("b/test_x.py::test_new", "test_new", "b/test_x.py::test_new")


class Starter:
    lock = threading.RLock()

    def report(self, text):
        pass

    def __init__(self, **environments):
        self.environments = environments
        self.started = []

    def start(self, cases, *sides):
        self.started += [side.name for side in sides]

    def environment_info(self, side):
        return self.environments.get(side.name, ENVIRONMENT)


class Races:
    """Measures every case in the same time."""

    def __init__(self, seconds=1e-5):
        self.seconds = seconds
        self.run = []

    def variants(self, group):
        self.run.append(("variants", *(case.name for case in group)))
        return [self._variant(case) for case in group]

    def sides(self, case, baseline, there=None, *notes, repair=None):
        self.repair = repair
        self.run.append(("sides", case.name, *(note.code for note in notes if note)))
        self.there = there
        return []

    def alone(self, case, why):
        self.run.append(("alone", case.name, why.code))
        return []

    def _variant(self, case):
        verdict = Verdict.of(case, Outcome.NEW, Reason("no-baseline", "measured"))
        variant_result = variant(case, case.name, self.seconds, None, None, 6, 12)
        return CaseResult(case, verdict, sample=sample(self.seconds, case), variant_result=variant_result)


def request(**changes):
    defaults = {"policy": preset("standard"), "collected": frozenset(), "known": set()}
    more = {"selection": Selection(), "shard": None, "against": "git:HEAD", "collect_command": (), "suite_cases": ()}
    more |= {"root": Path(), "folder": Path(), "statistic": "", "gate": ()}
    return SimpleNamespace(**{**defaults, **more, **changes})


def saved_baseline(races, starter=None, recreated=RIVAL, **changes):
    side, unmade = (None, recreated) if isinstance(recreated, Reason) else (recreated, None)
    return SavedBaselineStrategy(request(**changes), CONTENDER, starter or Starter(), races, side, SAVED, unmade)


def test_variants_of_a_group_race_each_other():
    races, starter = Races(), Starter()
    strategy = Strategy(request(), CONTENDER, starter, races, None)
    assert (strategy.group_of(CODED), strategy.missing()) == (CODED.group, [])
    strategy.race(CODED, [CODED, OTHER])
    assert races.run == [("variants", CODED.name, OTHER.name)]
    assert starter.started == ["contender"]


def test_each_case_races_the_recreated_side():
    races = Races()
    strategy = saved_baseline(races)
    assert strategy.group_of(CODED) == CODED.name
    strategy.race(CODED, [CODED])
    strategy.race(OTHER, [OTHER])
    assert races.run == [("sides", CODED.name), ("alone", OTHER.name, "not-in-baseline")]


@pytest.mark.parametrize("recreated", [None, Reason("no-source", "its tree is gone")])
def test_without_the_baselines_side_variants_race_and_times_stay_undecided(recreated):
    races = Races(2e-5)
    strategy = saved_baseline(races, recreated=recreated)
    (result,) = strategy.race(CODED, [CODED])
    assert (strategy.group_of(CODED), races.run) == (CODED.group, [("variants", CODED.name)])
    assert result.verdict.outcome is Outcome.INCONCLUSIVE
    assert ("its tree is gone" if recreated else "--replay all") in result.verdict.reason.message


def test_a_side_that_was_recreated_differently_is_incomparable():
    races, starter = Races(), Starter(baseline=replace(ENVIRONMENT, packages={"tensorflow": "2.20.0"}))
    (result,) = saved_baseline(races, starter).race(CODED, [CODED])
    assert (result.verdict.outcome, result.verdict.reason.code) == (Outcome.INCOMPARABLE, "other-environment")
    assert "tensorflow 2.21.0 there, 2.20.0 here" in result.verdict.reason.message
    assert races.run == []


def test_a_missing_case_whose_folder_is_not_collected_says_so(tmp_path):
    old = replace(CODED, name="tests/test_old.py::test_x")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_old.py").touch()
    for collected, said in (("benchmarks/test_new.py::test_y", True), ("tests/test_new.py::test_y", False)):
        asked = request(root=tmp_path, collected=frozenset([collected]))
        (row,) = missing(asked, [old], Reason("not-collected", "gone"), Reason("deselected-here", "off"))
        text = "tests/test_old.py is still there, and this run collects no benchmark in tests/; if it has the case, name tests/ in"
        assert (text in row.reason.message) == said


OTHER_TREE = replace(RIVAL, tree_redirect=("/", "/other"))


@pytest.mark.parametrize(
    ("source", "there", "said"),
    [
        (RIVAL, Listing(), ""),  # the same tree, so it is deselected on both sides
        (OTHER_TREE, Listing({CODED.name: CODED}, deselected=frozenset({CODED.name})), ""),
        (OTHER_TREE, Listing({CODED.name: CODED}), "its code runs it under the same options, and it is deselected"),
        (Reason("no-source", "its tree is gone"), Listing(), "whether its code runs it is unknown: its tree is gone"),
    ],
)
def test_a_saved_case_that_is_deselected_here_alone_is_missing(monkeypatch, source, there, said):
    monkeypatch.setattr(strategies, "benchmarks_of", lambda *arguments: there)
    monkeypatch.setattr(strategies, "source_of", lambda *arguments: source)
    strategy = saved_baseline(Races(), collected=frozenset([CODED.name]))
    strategy.conclude()
    rows = strategy.missing()
    assert [(row.outcome, row.reason.code) for row in rows] == [(Outcome.MISSING, "deselected-here")] * bool(said)
    assert all(said in row.reason.message for row in rows)


def test_the_tree_of_a_baseline_is_not_collected_without_a_doubt():
    saved_baseline(Races(), collected=frozenset([CODED.name]), known={CODED.name}).conclude()


def test_a_live_side_is_collected_even_if_nothing_races(monkeypatch):
    there = {name: replace(Case.named(name), source="1") for name in ("a.py::gone", "a.py::slow")} | {OTHER.name: OTHER}
    monkeypatch.setattr(strategies, "benchmarks_of", lambda *arguments: Listing(there))
    starter = Starter()
    starter.launcher = SimpleNamespace(stopwatch=Stopwatch(), environment=lambda side: {})
    asked = request(suite_cases=(OTHER,), known={OTHER.name}, collected=frozenset([OTHER.name, "a.py::slow"]))
    strategy = LiveSideStrategy(asked, CONTENDER, starter, Races(), OTHER_TREE)
    assert strategy.missing() == []
    strategy.conclude()
    assert [(row.case.name, row.reason.code) for row in strategy.missing()] == [
        ("a.py::gone", "not-collected"), ("a.py::slow", "deselected-here"),
    ]  # fmt: skip


def live(monkeypatch, root, *listings, collected=()):
    """Return a strategy for `CODED` on a live side, whose listings are these, and a list of the paths that they are asked for."""
    answers, paths = list(listings), []

    def listing(side, selection, *more):
        paths.append(selection.paths)
        if isinstance(answer := answers.pop(0), SideError):
            raise answer
        return answer

    monkeypatch.setattr(strategies, "benchmarks_of", listing)
    starter, side = Starter(), replace(OTHER_TREE, root=root)
    starter.launcher = SimpleNamespace(
        stopwatch=Stopwatch(), environment=lambda side: {"cases": collected}, ready=lambda *wanted: None,
        release=lambda side: None,
    )  # fmt: skip
    asked = request(suite_cases=(CODED,), known={CODED.name}, root=root)
    return LiveSideStrategy(asked, CONTENDER, starter, Races(), side), paths


BROKEN = CaseResult(CODED, Verdict.of(CODED, Outcome.ERROR, Reason("broken", "there is no such function")))


@pytest.mark.parametrize("known", [True, False])
def test_a_case_that_breaks_on_the_other_side_alone_is_new_if_that_side_does_not_have_it(monkeypatch, tmp_path, known):
    strategy, _ = live(monkeypatch, tmp_path, Listing({CODED.name: CODED} if known else {}))
    strategy.race(CODED, [CODED])
    assert strategy.races.run == [("sides", CODED.name)]
    assert (strategy.races.repair(BROKEN) is None) == known
    assert strategy.races.run[1:] == ([] if known else [("alone", CODED.name, "added")])


def test_a_mark_that_only_the_change_has_counts_on_both_sides_and_is_named(monkeypatch, tmp_path):
    strategy, _ = live(monkeypatch, tmp_path, Listing({CODED.name: replace(CODED, cpus=0, env=(("A", "1"),))}))
    strategy.race(CODED, [CODED])
    assert strategy.races.run == [("sides", CODED.name, "other-mark", "other-mark")]
    assert (strategy.races.there.cpus, strategy.races.there.env) == (CODED.cpus, CODED.env)


def test_a_file_that_a_worker_imports_and_no_list_has_leaves_missing_cases_unknown(monkeypatch, tmp_path):
    file = CODED.name.partition("::")[0]
    strategy, _ = live(monkeypatch, tmp_path, Listing(broken=(file,)), collected=[CODED.name])
    with pytest.raises(
        SideError, match=f"{file} is imported by its measuring processes, and not by the pytest that lists"
    ):
        strategy.conclude()
    strategy, _ = live(monkeypatch, tmp_path, Listing(broken=(file,)), collected=["c.py::test_other"])
    started = []
    strategy.starter.launcher.ready = lambda wanted, pairs: started.extend(side.name for side, _ in wanted)
    strategy.conclude()
    assert "the other side as committed" not in started  # which has its other files, and may have started as well
    assert len(started) == 1
    of_a_class = Listing(broken=(file,), seen=frozenset([file]))
    strategy, _ = live(monkeypatch, tmp_path, of_a_class, collected=[CODED.name])
    strategy.conclude()


def test_a_saved_baseline_races_with_the_thresholds_that_it_was_saved_with():
    races = Races()
    loose = replace(CODED, thresholds=(("minimum_effect", 0.45), ("tolerance", 0.9)))
    saved_baseline(races).race(loose, [loose])
    assert races.there.thresholds == ()


@pytest.mark.parametrize(
    ("own", "asked", "used"),
    [("", "", "mean"), ("", "median and tail", "median and tail"), ("median and tail", "median", "mean")],
)
def test_a_saved_baseline_races_by_the_statistic_that_it_was_saved_with_or_that_the_run_asks_for(own, asked, used):
    races, case = Races(), replace(CODED, statistic=own)
    strategy = saved_baseline(races, statistic=asked)
    strategy.saved = replace(SAVED, samples={CODED.name: sample(1e-5, replace(CODED, statistic="mean"))})
    strategy.race(case, [case])
    assert races.there.statistic == used


def test_metrics_are_compared_with_the_saved_ones_under_all_that_differs():
    here = replace(ENVIRONMENT, packages={"tensorflow": "2.20.0"}, machine={"processor": "y"})
    strategy = saved_baseline(Races(), Starter(contender=here))
    strategy.baseline = None
    values = strategy.baseline_values(CaseResult(replace(CODED, source="def")))
    assert values.differences == ["tensorflow 2.21.0 there, 2.20.0 here", Note.BENCHMARK_CHANGED]
    assert values.machines == ["processor x there, y here"]
    assert (len(values.facts), values.metric_values) == (6, MetricValues())
    assert strategy.baseline_values(CaseResult(OTHER)).facts == []
    strategy.baseline = RIVAL  # the benchmark is another one, so its side of today is probed instead
    assert strategy.baseline_values(CaseResult(replace(CODED, source="def"))).entrant.side == RIVAL


@pytest.mark.parametrize(
    "strategy", [saved_baseline(Races()), Strategy(request(), CONTENDER, Starter(), Races(), RIVAL)]
)
def test_what_follows_a_race_on_the_other_sides_own_file_is_read_there_too(strategy):
    own = replace(RIVAL, name="baseline with its own files")
    strategy._raced_on[CODED.name] = own
    assert strategy.baseline_entrant(CODED).side == own
    assert strategy.baseline_entrant(OTHER).side == RIVAL


def test_a_new_case_has_no_values_to_compare_with():
    strategy = LiveSideStrategy(request(), CONTENDER, Starter(), Races(), RIVAL)
    assert strategy.baseline_values(CaseResult(CODED)).entrant.case == CODED
    added = Verdict.of(CODED, Outcome.NEW, because(ReasonCode.ADDED, spec="git:HEAD"))
    assert strategy.baseline_values(CaseResult(CODED, added)) is None


def test_a_case_that_is_skipped_here_alone_is_incomparable():
    strategy = saved_baseline(Races())
    assert strategy.skipped(CODED, "no GPU").verdict.outcome is Outcome.INCOMPARABLE
    assert strategy.skipped(OTHER, "no GPU").skip == "no GPU"
    live_side = LiveSideStrategy(request(), CONTENDER, Starter(), Races(), RIVAL)
    assert live_side.skipped(CODED, "no GPU", mark=True).skip == "no GPU"
    for runs in (True, False):
        live_side.counterparts = SimpleNamespace(runs=lambda case, runs=runs: runs)
        verdict = live_side.skipped(CODED, "no GPU", mark=True).verdict
        assert (verdict.outcome if verdict else None) is (Outcome.INCOMPARABLE if runs else None)


@pytest.mark.parametrize(
    ("changed", "known", "answer", "incomparable"),
    [
        (True, True, Outcome.NEW, True), (True, True, None, False), (True, True, Outcome.ERROR, False),
        (False, True, Outcome.NEW, False), (True, False, Outcome.NEW, False),
    ],
)  # fmt: skip
def test_a_case_that_skips_itself_on_both_sides_is_open_if_the_other_sides_own_benchmark_runs(
    monkeypatch, tmp_path, changed, known, answer, incomparable
):
    strategy, _ = live(monkeypatch, tmp_path, Listing({CODED.name: CODED} if known else {}))
    strategy.race(CODED, [CODED])
    strategy.yardstick_changes = ("the function",) * changed
    reason = because(ReasonCode.NO_BASELINE)
    found = CaseResult(CODED, answer and Verdict.of(CODED, answer, reason), skip="" if answer else "no GPU")
    strategy.races.alone = lambda case, why, side: [found] if side.name == "the other side as committed" else []
    result = strategy.skipped(CODED, "no GPU")
    assert (result.verdict is not None) == incomparable
    if incomparable:
        assert (result.verdict.outcome, result.verdict.reason.code) == (Outcome.INCOMPARABLE, "skipped-on-one-side")
    else:
        assert result.skip == "no GPU"


@pytest.mark.parametrize(
    ("here", "there", "said"), [((), (), 0), (("--y",), ("--x",), 1), (("--y",), ("--y",), 0), (("--y",), (), 0)]
)
def test_a_change_that_alters_its_own_gate_is_named(monkeypatch, tmp_path, here, there, said):
    strategy, _ = live(monkeypatch, tmp_path, Listing({CODED.name: CODED}, gate=there))
    strategy.request.gate = here
    strategy.changed_only = SimpleNamespace(spares=lambda *_: None, notes=set())  # has notes of its own
    strategy.race(CODED, [CODED])
    assert sum("this change alters its own gate" in note for note in strategy.notes) == said


def test_a_side_that_cannot_be_collected_is_not_tried_again(monkeypatch, tmp_path):
    strategy, paths = live(monkeypatch, tmp_path, SideError("no pytest there"))
    for text in ("no pytest there$", "no pytest there; it was not tried again"):
        with pytest.raises(SideError, match=text):
            strategy.race(CODED, [CODED])
    assert len(paths) == 1


# The side of a saved baseline


@pytest.mark.parametrize(
    ("here", "saved", "made"),
    [
        (Snapshot("7ree", "c", False), "7ree", False),
        (Snapshot("7ree", "c", True, ("module",)), "7ree", True),
        (Snapshot("other", "c", False), "7ree", True),
        (None, "7ree", True),
        (Snapshot("", "c", False), "gone", True),
    ],
)
def test_the_source_of_a_baseline_is_the_working_tree_only_while_both_are_the_same(monkeypatch, here, saved, made):
    monkeypatch.setattr(strategies, "snapshot", lambda root: here)
    made_of = lambda root, tree, *more: JudgedTree(Path("/made"), ("/", f"/{tree}"), Path(), ("", ""), "", (), tree)  # noqa: E731
    monkeypatch.setattr(strategies, "judged_tree", made_of)
    baseline = replace(SAVED, context=replace(SAVED.context, tree=saved))
    found = source_of(baseline, CONTENDER, Path("/cache"))
    assert (found.root, found.tree_redirect) == ((Path("/made"), ("/", f"/{saved}")) if made else (Path("/"), None))
    if here != Snapshot("", "c", False):
        assert (
            source_of(replace(baseline, context=replace(SAVED.context, tree="")), CONTENDER, Path()).code == "no-source"
        )


class Environments:
    """Installs what it is asked for."""

    def get(self, requirements, python):
        return SimpleNamespace(executable=f"{python}: {' '.join(requirements)}")


@pytest.mark.parametrize(
    ("packages", "python", "executable"),
    [
        ({"tensorflow": "2.21.0"}, "3.11.9", "python"),
        ({"tensorflow": "2.20.0"}, "3.11.9", "3.11: tensorflow==2.20.0"),
        ({"tensorflow": "2.21.0"}, "3.12.1", "3.12: tensorflow==2.21.0"),
    ],
)
def test_a_recreated_side_has_the_packages_and_the_settings_of_its_baseline(monkeypatch, packages, python, executable):
    monkeypatch.setattr(strategies, "source_of", lambda *arguments: RIVAL)
    monkeypatch.setattr(strategies, "packages", lambda: {"tensorflow": "2.21.0"})
    monkeypatch.setattr(strategies, "installed", lambda executable: {})
    monkeypatch.setattr(strategies, "settings", lambda: {"TF_NEW": "1", "TF_OTHER": "1"})
    monkeypatch.setattr("platform.python_version", lambda: "3.11.7")
    then = {"TF_OTHER": "0", "PYTEST_OPTION_size": "2", "CUDA_DEVICE_ORDER": "0"}
    environment = replace(ENVIRONMENT, packages=packages, python=python, settings=then)
    baseline = replace(SAVED, context=replace(SAVED.context, environment=environment))
    contender = replace(CONTENDER, env={"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "1", "TF_MINE": "1"})
    side = recreate_side(baseline, contender, Path("/cache"), Environments())
    assert side.executable == executable
    assert side.env == {"TF_OTHER": "0", "CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "0"}
    assert set(side.unset) == {"TF_NEW", "TF_MINE"}
    asked = SimpleNamespace(replay="never", folder=Path("/cache"), against="")
    assert baseline_side(asked, baseline, contender, Environments()) is None


def test_a_mark_that_prevents_no_pass_must_be_on_both_sides():
    strategy = saved_baseline(Races())
    assert [strategy.is_gated(replace(case, ungated="a prototype")) for case in (CODED, OTHER)] == [True, False]
    assert strategy.is_gated(OTHER)


@pytest.mark.parametrize(
    ("outcome", "own", "asked", "noted"),
    [
        (Outcome.IMPROVED, "", True, True),
        (Outcome.IMPROVED, "", False, False),
        (Outcome.UNCHANGED, "", True, False),
        (Outcome.IMPROVED, "a prototype", True, False),
    ],
)
def test_an_improvement_fails_a_gated_case_if_the_run_asks_for_it(outcome, own, asked, noted):
    strategy = Strategy(request(fail_on_improvement=asked), CONTENDER, Starter(), Races(), None)
    case = replace(CODED, ungated=own)
    result = strategy.gated(CaseResult(case, judged(case, outcome, Reason("code", "why")), sample=sample(1e-3, case)))
    assert [note.code for note in result.verdict.reason.notes] == [Note.UNWANTED] * noted
    assert result.verdict.outcome is outcome
