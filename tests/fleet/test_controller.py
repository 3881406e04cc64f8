"""The controller with a scripted engine: each case ends with exactly one verdict, whatever the engine does."""

from __future__ import annotations

import json

import pytest

from tests.fakes.fleet_job import plan, report_of
from tests.fakes.report import CODE
from tfbench.errors import EngineAway, EngineError, JobError, ReportError
from tfbench.fleet import controller
from tfbench.fleet.controller import Fleet, failed_logs, line, merge, seconds_left
from tfbench.fleet.engines import LocalEngine, State
from tfbench.fleet.jobs import FleetFolder, node_name
from tfbench.fs import write_whole
from tfbench.model.words import span
from tfbench.report import json_format
from tfbench.report.merge import merge as merge_reports


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
    folder.note(index, "done", "n1")


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
            folder.log(2).parent.mkdir(parents=True, exist_ok=True)
            folder.log(2).write_bytes(b"first\nlast words \xff\n")
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
    assert failed_logs(folder, status) == ["job 2: first", "job 2: last words \N{REPLACEMENT CHARACTER}"]


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


def test_refusals_of_an_earlier_fleet_neither_count_nor_hide_a_failure(folder):
    for _ in range(20):
        folder.note(1, "aside", "bad", reason="its canary failed")

    def does(index, attempt):
        assert attempt < 9
        if index == 2 or (index == 1 and attempt < 3):
            return  # its process dies before it notes anything
        finish(folder, index)

    folder.note(2, "aside", "bad", reason="its canary failed")
    one, engine = fleet(folder, does)
    lost = one.run().lost
    assert engine.attempts == {1: 3, 2: 3, 3: 1, 4: 1}
    assert list(lost) == [2]
    assert "no process of it came to its end in 3 attempts" in lost[2]


def test_the_only_machine_is_not_asked_again_after_its_canary_failed(folder):
    told = []
    folder.set_aside(node_name(), "its canary failed")
    with pytest.raises(EngineError, match="this machine was set aside, and is the only one: run tfbench doctor here"):
        Fleet(folder, LocalEngine(["no program"]), lambda status: told.append(dict(status.aside))).run()
    assert told == [{node_name(): "its canary failed"}]


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
    assert json.loads(folder.report(1).with_suffix(".refused").read_text())["shard"]["index"] == 2


def test_a_report_whose_job_cannot_be_read_for_a_while_stays(folder):
    away = folder.path / "away"

    def does(index, attempt):
        if (index, attempt) == (1, 2):
            away.rename(folder.job_file(1))
            return
        finish(folder, index)
        if index == 1:
            folder.job_file(1).rename(away)

    one, engine = fleet(folder, does)
    assert one.run().done == 4
    assert engine.attempts[1] == 2


@pytest.mark.parametrize("use", [lambda folder: merge(folder, {}), lambda folder: fleet(folder, None)[0].run()])
def test_a_damaged_report_stays_and_the_message_has_the_fix(folder, use):
    for index in range(1, 5):
        finish(folder, index)
    whole = folder.report(2).read_text()
    folder.report(2).write_text(whole[:-9])
    with pytest.raises(JobError, match=r"000002.json is not JSON: .*; remove the file, and the job is measured again"):
        use(folder)
    assert folder.report(2).read_text() == whole[:-9]


def test_jobs_and_plans_of_another_fleet_are_refused_before_anything_runs(folder, tmp_path):
    plan(tmp_path / "other", 4, cases=2)
    other = FleetFolder(tmp_path / "other")
    mine = folder.job_file(2).read_text()
    folder.job_file(2).write_text(other.job_file(2).read_text())
    one, engine = fleet(folder, lambda *_: None)
    with pytest.raises(JobError, match=r"000002.json belongs to another plan than"):
        one.run()
    folder.job_file(2).write_text(mine)
    folder.plan_file.write_text(other.plan_file.read_text())
    one, engine = fleet(folder, lambda *_: None)
    with pytest.raises(JobError, match=r"000001.json belongs to another plan than"):
        one.run()
    assert engine.attempts == {}


def test_merging_refuses_what_is_missing_twice_or_from_another_kind_of_machine(folder):
    for index in (1, 2, 3):
        finish(folder, index)
    with pytest.raises(JobError, match=r"job 4 of 4 has no report: .* fleet run --resume .* measures what is missing"):
        merge(folder, {})
    with pytest.raises(ReportError, match=r"report of a fleet's job: merge the folder of the fleet, whose plan knows"):
        merge_reports([("1.json", json_format.read(folder.report(1).read_text(), "1.json"))])
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
    assert main(["gate", str(folder.path), "--output", str(tmp_path / "whole")]) == 0
    assert "pass: 8 unchanged" in capsys.readouterr().out
    assert (tmp_path / "whole/report.json").stat().st_size > 1000
