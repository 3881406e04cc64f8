"""Every reader of files, with real files to mutate, and with what is done to the values that it returns."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import io
import json
import os
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from msgspec import structs
from rich.console import Console

from tests.fakes.fleet_job import plan
from tests.fakes.profiles import Built
from tests.fakes.report import CODE, complete, row
from tests.fuzz.mutations import encoded, mutated_archive, mutated_bytes, mutated_json, mutated_text, mutated_toml
from tests.report.test_json_reader import REPORT
from tests.storage.test_baselines import BASELINE, CASE
from tests.storage.test_history import ACCEPTED as ACCEPTED_CHANGE
from tests.storage.test_history import FULL as HISTORY_RECORD
from tfbench import ruling
from tfbench.commands.ci import add_gate, run_gate
from tfbench.doctor.calibration import CalibrationTrial, Journal, by_workload
from tfbench.errors import ReportError
from tfbench.fleet.jobs import FleetFolder
from tfbench.fleet.jobs import load as load_job
from tfbench.model import Ratio, Report
from tfbench.model.formats import line
from tfbench.profiles import folders
from tfbench.report import json_format, markdown, merge, terminal
from tfbench.report.artifact import ACCEPTED, as_json, load_accepted, load_artifact, load_report
from tfbench.report.report_page import render as render_page
from tfbench.report.saved import read, read_inputs
from tfbench.report.trends import Trends, render_case, render_overview
from tfbench.ruling import decided
from tfbench.session.request import CaseResult
from tfbench.session.resume import result_of
from tfbench.storage.baselines import Baselines
from tfbench.storage.history import History
from tfbench.suite.shards import Shard, part

DATA = Path(__file__).parent / "data"
ASV = Path(__file__).parents[1] / "data" / "asv-result.json"
SIDE = {
    "spec": "git:main", **CODE, "root": "/x", "python": "3.12.1", "packages": {"numpy": "2", "keras": "3"}, "settings": {"TF_X": "1"},
    "slowdown": 0.0, "import_seconds": 2.5, "machine": {"system": "Linux", "processor": "x"}, "defaults": {"onednn": "on"},
}  # fmt: skip
SIDES = {"baseline": SIDE, "contender": {**SIDE, "spec": "working tree", "python": "3.11.2"}}
PROFILE = {
    "schema": "tfbench-profile/1", "case": CASE.name, "side": "baseline", "folder": "f", "why": ["slow"], "step": 2e-3,
    "time": {"host compute": 1e-3},
}  # fmt: skip


def report_text() -> str:
    facts = {"flops": 10, "first_call": 0.5, "peak_host_memory": 1e6, "accuracy": 0.5, "contracts": {"max_traces": 1}}
    variants = tuple(one.changed(facts=facts, ratio=Ratio(1.1, 1.0, 1.2, 0.95)) for one in REPORT.variant_results)
    whole = replace(
        REPORT, sides=SIDES, skips=(), due=(CASE.name,), complete=True, profiles=(PROFILE,), variant_results=variants
    )
    return json_format.render(whole)


def shard_text() -> str:
    name = "b/test_x.py::test_y"
    return json_format.render(complete([row(name)], sides=SIDES, shard=part(Shard(1, 1), [name], [name])))


@dataclass(frozen=True)
class Reader:
    """A reader, the name of its file, what to mutate, how, and what reads it."""

    name: str
    file: str
    seeds: Callable[[Path], Sequence[object]]
    """Called with a folder for scratch files."""
    mutate: Callable[[object, random.Random], bytes]
    read: Callable[[Path], object]
    named: bool = True
    """Whether an error must name the file: an entry of an archive is named instead of it."""
    refuses: tuple[type[Exception], ...] = ()
    """What it raises for a file without a fault, if that is of another kind."""


def use_report(path: Path) -> object:
    report = load_report(path)
    decision = decided(report)
    markdown.render_comment(report, decision)
    terminal.render(report, width=100, colour=True)
    markdown.render(report)
    use_page(report)
    json_format.render(report)
    return report


def use_page(report: Report, *more: object) -> object:
    page = render_page(report, *more)
    assert page.count("<script") == page.count('<script type="application/gzip" id="') + 2
    return page


def use_shard(path: Path) -> object:
    report = load_report(path)
    with contextlib.suppress(ReportError):
        return merge.merge([(path.name, report)])
    return None


@contextlib.contextmanager
def outside_of_a_checkout() -> Iterator[None]:
    """A shard in a checkout must be of the commit there."""
    before = Path.cwd()
    os.chdir(tempfile.gettempdir())
    try:
        yield
    finally:
        os.chdir(before)


def use_gate(path: Path) -> object:
    """Run the command, with GitHub's annotations and the summary."""
    parser = argparse.ArgumentParser()
    add_gate(parser)
    arguments = parser.parse_args([str(path)])
    with contextlib.redirect_stdout(io.StringIO()) as out, outside_of_a_checkout():
        code = run_gate(arguments)
    assert code in (0, 1, 3, 4, 5)
    commands = [line for line in out.getvalue().splitlines() if line.lstrip().startswith("::") or "##[" in line]
    assert all(line.startswith(("::error ", "::warning ")) for line in commands), commands
    return code


def use_artifact(path: Path) -> object:
    report, agreed = load_artifact(path)
    return markdown.render_comment(report, decided(report, agreed), "https://example.org")


def use_baseline(path: Path) -> object:
    found = Baselines(path.parent).fetch(path.stem)
    for sample in found.samples.values():
        median(sample.seconds), min(sample.floors), sample.case.label
    accepted_because = [one.reason for one in found.accepted]
    return found.environment, found.context.policy, accepted_because


def use_inputs(path: Path) -> object:
    return use_page(*read_inputs([path]))


def use_history(path: Path) -> object:
    found = History(path.parent).content()
    trends = Trends(path.parent)
    lines = [trend for case in trends.followed for trend in trends.of_case(case.series.case)]
    Console(file=io.StringIO(), width=100).print(render_overview(lines, 1, 100))
    for one in lines:
        Console(file=io.StringIO(), width=100).print(render_case([one]))
    if found.problems:
        raise ReportError(found.problems[0])
    return found.once()


def use_accepted(path: Path) -> object:
    found = load_accepted(path)
    json.loads(as_json(found))
    return ruling.decided(REPORT, found, datetime.date(2026, 1, 1))


def use_kept(path: Path) -> object:
    (kept,) = folders.named(path.parent.parent, "")
    return list(map(str, kept.sides.values()))


def use_entry(path: Path) -> object:
    """An entry of the journal of a run; a damaged one is measured again."""
    found = result_of(path.read_text(errors="replace"))
    if found is not None:
        report = replace(
            REPORT, verdicts=tuple(found.rows), variant_results=(found.variant_result,) * bool(found.variant_result)
        )
        terminal.render(report, width=100, colour=False)
        json_format.render(report)
    return found


def profiles(scratch: Path) -> list[bytes]:
    made = Built()
    plane, line = made.steps(4)
    made.event(plane, line, "MatMul:MatMul", 100, 20, kind="MatMul", shape="[2,2]")
    made.event(plane, line, "Iterator::Map::Batch", 200, 30, id=7, parent_id=3)
    gpu = made.plane("/device:GPU:0", memory=1)
    made.event(gpu, made.line(gpu, "Stream #1"), "kernel", 120, 10, hlo_op="a", correlation_id=4)
    return [made.write(scratch).read_bytes()]


def baselines(scratch: Path) -> list[str]:
    return [Baselines(scratch).save("first", replace(BASELINE, name="first")).read_text()]


def histories(scratch: Path) -> list[str]:
    history = History(scratch)
    return [history.record(HISTORY_RECORD).read_text(), history.accept(ACCEPTED_CHANGE).read_text()]


def jobs(scratch: Path) -> list[str]:
    plan(scratch / "fleet", 1, cases=2)
    return [FleetFolder(scratch / "fleet").job_file(1).read_text()]


def trials(scratch: Path) -> list[str]:
    journal = Journal(scratch / "j.jsonl")
    ratios = (Ratio(1.1, 1.0, 1.2, 0.94),)
    one = CalibrationTrial(
        "race", "quick", "matmul", 0.05, "regressed", 1.5, 3, 1, (0.1, 0.2), (0, 1), (0.01, 0.02), ratios
    )
    for slowdown in (0.05, 0.0):
        journal.append(structs.replace(one, slowdown=slowdown))
    return [journal.path.read_text()]


def mutated_lines(text: object, rng: random.Random) -> str:
    lines = str(text).splitlines(keepends=True)
    at = rng.randrange(len(lines))
    lines[at] = mutated_json(lines[at], rng).replace("\n", rng.choice(["", "\n"])) + "\n"
    return "".join(lines)


def trimmed(file: Path) -> str:
    content = json.loads(file.read_text())
    content["cases"] = content["cases"][:2]
    return json.dumps(content)


ACCEPT = """[[accept]]
case = "b/test_x.py::test_x[a=1]"
up_to = 1.08
reason = "agreed"
until = 2027-01-31

[[accept]]
case = "b/test_x.py::test_y"
gone = true
reason = "deleted"
until = 2027-01-31
"""
DOCS = Path(__file__).parents[2] / "docs" / "data"
KEPT = {
    "schema": folders.SCHEMA, "case": CASE.name, "raced": 0.1,
    "contender": "x",
}  # fmt: skip
ENTRY = CaseResult(
    CASE, verdict=REPORT.verdicts[0], metrics=REPORT.verdicts[1:], variant_result=REPORT.variant_results[0],
    sample=BASELINE.samples[CASE.name],
)  # fmt: skip
JSON_FILE, TEXT_FILE = encoded(mutated_json), encoded(mutated_text)


def archive_of(texts: object, rng: random.Random) -> bytes:
    assert isinstance(texts, dict)
    return mutated_archive(texts, rng)


READERS = (
    Reader("report", "report.json", lambda _: [report_text()], JSON_FILE, use_report),
    Reader("report's text", "report.json", lambda _: [report_text()], TEXT_FILE, use_report),
    Reader("report in gate", "report.json", lambda _: [report_text(), shard_text()], JSON_FILE, use_gate),
    Reader("shard", "shard.json", lambda _: [shard_text()], JSON_FILE, use_shard),
    Reader("artifact", "report.zip", lambda _: [{"report.json": report_text(), ACCEPTED: as_json([])}], archive_of,
           use_artifact, named=False),
    Reader("artifact's file", "report.json", lambda _: [report_text()], JSON_FILE, use_artifact),
    Reader("baseline", "first.json", baselines, JSON_FILE, use_baseline),
    Reader("baseline compared", "first.json", baselines, JSON_FILE, use_inputs),
    Reader("history", "session.jsonl", histories, encoded(mutated_lines), use_history),
    Reader("pytest-benchmark", "pb.json", lambda _: [(DATA / "pytest_benchmark.json").read_text()], JSON_FILE,
           use_inputs),
    Reader("asv", "asv.json", lambda _: [ASV.read_text()], JSON_FILE, use_inputs),
    Reader("report shown", "v.json", lambda _: [report_text()], JSON_FILE, use_inputs),
    Reader("versions compared", "v.json", lambda _: [trimmed(DOCS / "versions-interleaved.json")], JSON_FILE, read,
           refuses=(ReportError,)),
    Reader("job", "job.json", jobs, JSON_FILE, load_job),
    Reader("acceptance", "accepted.toml", lambda _: [ACCEPT], encoded(mutated_toml), use_accepted),
    Reader("calibration", "trials.jsonl", trials, encoded(mutated_lines), lambda path: by_workload(Journal(path).read())),
    Reader("entry of a run", "entry.json", lambda _: [line(ENTRY)], JSON_FILE, use_entry),
    Reader("xplane", "host.xplane.pb", profiles, lambda one, rng: mutated_bytes(bytes(one), rng),
           lambda path: folders.step_breakdown([path])),
    Reader("folder of profiles", folders.ABOUT, lambda _: [json.dumps(KEPT)], JSON_FILE, use_kept),
)  # fmt: skip
