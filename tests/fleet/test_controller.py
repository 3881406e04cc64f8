"""The controller with a scripted engine: each case ends with exactly one verdict, whatever the engine does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fakes.fleet_job import plan, report_of
from tests.fakes.report import CODE
from tfbench.errors import EngineAway, EngineError, JobError, ReportError
from tfbench.fleet import controller
from tfbench.fleet.controller import Fleet, failed_logs, line, merge, seconds_left
from tfbench.fleet.engines import State
from tfbench.fleet.jobs import FleetFolder
from tfbench.fs import write_whole
from tfbench.model.words import span
from tfbench.report import json_format


class FakeEngine:
    """Ends each job at the poll after its submission, by calling ``does(index, attempt)``."""

    slots = 2

    def __init__(self, does):
        self._does, self._submitted, self.attempts, self.calls = does, [], {}, []
        self.avoided = None

    def submit(self, jobs, avoid):
        self._submitted += [job.index for job in jobs]

    def poll(self):
        ended, self._submitted = self._submitted, []
        for index in ended:
            self.attempts[index] = self.attempts.get(index, 0) + 1
            self._does(index, self.attempts[index])
        return dict.fromkeys(ended, State.ENDED)

    def avoid(self, hosts):
        self.avoided = list(hosts)

    def cancel(self):
        self.calls.append("cancel")

    def close(self):
        self.calls.append("close")


@pytest.fixture
def folder(tmp_path):
    plan(tmp_path / "fleet", 4, cases=2)
    return FleetFolder(tmp_path / "fleet")


def finish(folder, index, attempt=1):
    write_whole(folder.report(index), json_format.render(report_of(folder.job(index))))
    folder.note(index, "done", "n1", outcomes={"unchanged": 2})


def outcomes(report):
    return {row.case.short_name: str(row.outcome) for row in report.verdicts}


def fleet(folder, does, **how):
    engine = FakeEngine(does)
    return Fleet(folder, engine, sleep=lambda seconds: None, **how), engine


def test_every_job_ends(folder):
    one, _ = fleet(folder, lambda index, attempt: finish(folder, index))
    status = one.run()
    assert (status.done, status.cases_done, status.outcomes) == (4, 8, {"unchanged": 8})
    assert set(outcomes(merge(folder, {})).values()) == {"unchanged"}


def test_a_lost_job_is_tried_again_and_then_an_error_of_each_of_its_cases(folder):
    def does(index, attempt):
        if index == 1 and attempt < 3:
            return
        if index == 2:
            write_whole(folder.log(2), "first\nlast words\n")
            folder.note(2, "failed", "n1", reason="the disk is full")
            return
        finish(folder, index)

    one, engine = fleet(folder, does)
    status = one.run()
    assert engine.attempts == {1: 3, 2: 3, 3: 1, 4: 1}
    report = merge(folder, status.lost)
    found = outcomes(report)
    assert sorted(found.values()) == ["error"] * 2 + ["unchanged"] * 6
    lost = next(row for row in report.verdicts if str(row.outcome) == "error")
    assert "job 2 was lost: the disk is full" in lost.reason.message
    assert not report.gap
    assert failed_logs(folder, status) == ["job 2: first", "job 2: last words"]


def test_a_job_on_a_machine_that_is_set_aside_is_not_counted_as_tried(folder):
    def does(index, attempt):
        if attempt <= 4:
            folder.set_aside("bad", "its canary failed")
            folder.note(index, "aside", "bad", reason="set aside")
        else:
            finish(folder, index)

    one, engine = fleet(folder, does)
    assert one.run().lost == {}
    assert engine.avoided == ["bad"]


def test_it_goes_on_where_it_was(folder):
    finish(folder, 2)
    finish(folder, 3)
    one, engine = fleet(folder, lambda index, attempt: finish(folder, index))
    assert one.run().done == 4
    assert sorted(engine.attempts) == [1, 4]


def test_an_interruption_cancels_what_was_submitted(folder):
    def does(index, attempt):
        raise KeyboardInterrupt

    one, engine = fleet(folder, does)
    with pytest.raises(KeyboardInterrupt):
        one.run()
    assert engine.calls == ["cancel"]


def test_an_engine_that_is_away_for_a_while_loses_nothing(folder):
    away = iter([True] * 3 + [False] * 9)

    def does(index, attempt):
        finish(folder, index)

    one, engine = fleet(folder, does)
    poll = engine.poll

    def sometimes():
        if next(away):
            raise EngineAway("squeue: no answer")
        return poll()

    engine.poll = sometimes
    assert one.run().done == 4


def test_an_engine_that_stays_away_ends_the_fleet_with_how_to_go_on(folder):
    times = iter(range(0, 10**6, 700))
    one, engine = fleet(folder, lambda *_: None, clock=lambda: next(times))

    def away():
        raise EngineAway("squeue: no answer")

    engine.poll = away
    with pytest.raises(EngineError, match=r"no answer, for 30 minutes; tfbench fleet run --resume .* goes on"):
        one.run()


def test_an_edited_job_is_refused_before_anything_runs(folder):
    path = folder.job_file(3)
    path.write_text(path.read_text().replace('"scale":"small"', '"scale":"large"'))
    one, engine = fleet(folder, lambda *_: None)
    with pytest.raises(JobError, match="was edited"):
        one.run()
    assert engine.attempts == {}


def test_a_report_of_another_job_is_measured_again(folder):
    def does(index, attempt):
        if index == 1 and attempt == 1:
            write_whole(folder.report(1), json_format.render(report_of(folder.job(2))))
        else:
            finish(folder, index)

    one, engine = fleet(folder, does)
    assert one.run().done == 4
    assert engine.attempts[1] == 2


def test_merging_refuses_what_is_missing_twice_or_from_another_kind_of_machine(folder):
    for index in (1, 2, 3):
        finish(folder, index)
    with pytest.raises(JobError, match=r"job 4 of 4 has no report: .* fleet run --resume .* measures what is missing"):
        merge(folder, {})
    side = {"spec": "git:main", "slowdown": 0.0, **CODE, "machine": {"driver": "550.1"}}
    other = report_of(folder.job(4), sides={"baseline": side, "contender": {**side, "spec": "working tree"}})
    write_whole(folder.report(4), json_format.render(other))
    with pytest.raises(ReportError, match="are not of one run: their sides differ"):
        merge(folder, {})


def test_a_report_written_in_lines_reads_as_one_written_at_once(folder):
    for index in range(1, 5):
        finish(folder, index)
    report = merge(folder, {})
    assert json.loads("".join(json_format.lines(report))) == json.loads(json_format.render(report))


def test_a_fleet_without_any_report(folder):
    with pytest.raises(JobError, match="none of the 4 jobs has a report: no machine"):
        merge(folder, dict.fromkeys(range(1, 5), "no machine"))


def test_the_line_of_progress(folder):
    status = controller.Status(4, 8, 1, 2, {3: "lost"}, {"n2": "canary"}, 2, seconds_done=1.0, seconds=4.0)
    status.outcomes.update({"unchanged": 1, "regressed": 1})
    text = "1 of 4 jobs, 2 running, 2 of 8 cases, 1 regressed, 1 unchanged, 1 job lost, 1 machine set aside"
    assert line(status, 240.0) == f"{text}, about 4 min left"
    assert seconds_left(status, 2, 10.0, 0.0) == 30.0
    assert [span(seconds) for seconds in (9, 240, 7200)] == ["9 s", "4 min", "2.0 h"]


def test_the_reports_of_a_fleet_are_merged_by_the_command(folder, tmp_path, capsys):
    from tfbench.cli import main

    for index in range(1, 5):
        finish(folder, index)
    assert main(["merge", str(folder.path), "--report-json", str(tmp_path / "whole.json")]) == 0
    assert capsys.readouterr().out == f"4 reports, 8 cases: {tmp_path / 'whole.json'}\n"
    assert Path(tmp_path / "whole.json").stat().st_size > 1000
