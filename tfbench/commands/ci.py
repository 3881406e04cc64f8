"""Commands of a CI job: race a change, and decide on reports by an exit code, with a comment."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.text import Text

from tfbench.commands import PYTEST, amount
from tfbench.errors import ReportError, SideError, UsageError
from tfbench.fs import read_text, write_whole
from tfbench.model import TIME, Outcome, Report
from tfbench.policy import Policy
from tfbench.race.workers import run_terminable
from tfbench.report import artifact, json_format, markdown
from tfbench.report.merge import merge
from tfbench.report.screen import COLOURS, Screen, say
from tfbench.report.summary import code_of_side
from tfbench.ruling import Entry, GateDecision, Result, decided
from tfbench.sides import source_tree
from tfbench.suite.axes import case_words
from tfbench.suite.functions import line_of
from tfbench.untrusted import brief, command, described

SHARD, REPORT = "shard-{}.json", "report.json"
_CODES = (
    "2 interrupted, 3 internal error, 4 wrong command line, 5 no benchmark selected, more than 128 killed by a signal"
)
_UNUSABLE = "the run uploaded none, or one that cannot be read"


def add_ci(parser: argparse.ArgumentParser) -> None:
    # fmt: off
    option = parser.add_argument
    option("paths", metavar="PATH", nargs="*", help="files and folders of benchmarks (default: those of pytest's settings)")
    option("-k", metavar="EXPRESSION", default="", help="select cases by name, as in pytest")
    option("--base", metavar="REVISION", default="", help="the target branch or an older commit; the change is compared with the last commit that it shares")
    option("--against", metavar="SPEC", default="", help="another side than the base, as for pytest")
    option("--policy", metavar="NAME", default="quick", help="confidence and cost (default: %(default)s)")
    option("--device", metavar="DEVICES", default="all", help="devices to measure on (default: %(default)s)")
    yes = ("true", "false")
    option("--require-gpu", choices=yes, default="false", help="whether a missing GPU is an error (default: %(default)s)")
    option("--arguments", metavar="TEXT", default="", help="further arguments for pytest, one per line: --arguments=-x")
    option("--shard", metavar="N/OF", default="", help="race one part of the cases, such as 2/4, and leave the decision to tfbench gate")
    option("--accepted", metavar="FILE", type=Path, default=Path(".github/tfbench-accepted.toml"), help="accepted regressions, ignored if the file does not exist (default: %(default)s)")
    _add_min_compared(parser)
    option("--strict", choices=yes, default="true", help="whether an inconclusive case (exit code 3) fails the job (default: %(default)s)")
    option("--comment", metavar="FILE", type=Path, help="write the result as Markdown, for a comment")
    option("--output", metavar="DIR", type=Path, default=Path("tfbench-report"), help="folder of the report (default: %(default)s)")
    option("--bisect", metavar="MINUTES", type=amount, default=0.0, help="on a regression, look for its commit for at most so many minutes (default: print the command that does)")
    parser.set_defaults(link="")
    # fmt: on


def run_ci(arguments: argparse.Namespace) -> int:
    """Gate a change in CI: race its benchmarks against the base, decide, and write the comment.

    The base is that of the pull request of GitHub or the merge request of GitLab, unless --base or --against names another.

    The exit codes are those of `tfbench gate`. A run of pytest that ends with another code than 0 or 1 is not complete. The
    command then ends with 2 if pytest refuses its command line, and otherwise with 5, or 1 if a case regressed.
    """
    _check_share(arguments)
    folder, accepted = arguments.output, arguments.accepted if arguments.accepted.exists() else None
    if accepted:
        artifact.load_accepted(accepted)  # what is wrong in it is known before the race
    for file in (*folder.glob(SHARD.format("*")), folder / REPORT, folder / artifact.ACCEPTED):
        file.unlink(missing_ok=True)  # of an earlier run, or of the branch
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (SHARD.format(re.sub(r"\D.*", "", arguments.shard)) if arguments.shard else REPORT)
    code = _race(arguments, path)
    if not path.exists():
        if not code:
            _complain("pytest wrote no report; remove options such as --collect-only from --arguments")
        code = code or Result.ERROR.code
    elif not arguments.shard:
        report = artifact.load_report(path)
        decision = _decide(arguments, report, accepted)
        _find_commit(arguments, report, decision)
        ruling, ruled = decision.ruling, decision.ruling.result.code
        tolerated = arguments.strict == "false" and ruling.result is Result.INCONCLUSIVE and ruling.tolerable
        return ruled if ruled == Result.REGRESSED.code else max(code, 0 if tolerated else ruled)
    _tell_github(code=code)
    return code


def _find_commit(arguments: argparse.Namespace, report: Report, decision: GateDecision) -> None:
    """Print the command that finds the commit of the first regression in time, and run it as long as --bisect allows."""
    slower = [row for row in decision.ruling.verdicts if row.metric == TIME and row.outcome is Outcome.REGRESSED]
    then, now = (report.sides.get(side, {}) for side in ("baseline", "contender"))
    good, _, more = str(then.get("spec", "")).partition("+")
    if not slower or more or not good.startswith("git:") or now.get("dirty") or not now.get("commit"):
        return
    case = case_words(_from("", report, slower[0].case.name))
    words = ("tfbench", "bisect", "--good", good.removeprefix("git:"), "--bad", str(now["commit"]), *case)
    say(f"the commit that made it slower: {command(*words)}")
    try:
        if arguments.bisect:
            run_terminable([sys.executable, "-m", *words], seconds=60 * arguments.bisect)
    except subprocess.TimeoutExpired:
        say(f"not found within --bisect {arguments.bisect:g}: run the command, or give it more minutes")


def _race(arguments: argparse.Namespace, report: Path) -> int:
    """Run pytest; return 0 if its report is complete, otherwise the exit code of this command."""
    words = ["--benchmark", "--tfbench-policy", arguments.policy, "--tfbench-against", _against(arguments)]
    words += ["--tfbench-device", arguments.device, "--tfbench-profile-on-regression"]
    words += filter(None, arguments.arguments.splitlines())
    if arguments.require_gpu == "true":
        words.append("--tfbench-require-gpu")
    words += ["-k", arguments.k] if arguments.k else []
    words += arguments.paths
    if arguments.shard:
        words += ["--tfbench-shard", arguments.shard]
    code = run_terminable([*PYTEST, *words, f"--tfbench-report-json={report}"])
    if code in (0, 1):  # with 1, a case failed, and the gate says which
        return 0
    _complain(f"the run of pytest ended with exit code {code if code > 0 else 128 - code} ({_CODES})")
    return 2 if code == 4 else Result.ERROR.code


def _against(arguments: argparse.Namespace) -> str:
    """Return the specification of the other side.

    Raises `UsageError` if the command line names no base, and this is no job of a pull request or merge request.
    """
    if arguments.against:
        return str(arguments.against)
    change = _change()
    if not (arguments.base or change.base):
        raise UsageError("no base: this is no job of a pull request; add --base BRANCH, or --against such as git:main")
    if arguments.base:
        base = source_tree.base_of_change(Path(), arguments.base)
        if (
            not change.tested
            and base == source_tree.commit_of(Path(), "HEAD")
            and not source_tree.working_code(Path()).dirty
        ):
            text = "HEAD has no change since it, and would race itself; name an older commit, such as HEAD~1"
            raise UsageError(f"--base {brief(arguments.base)}: {text}")
    else:
        base = source_tree.base_of_change(Path(), change.base, change.branch, change.head)
        if not change.tested:
            raise UsageError("CI names a base and no commit of the change: set CI_COMMIT_SHA, or add --base BRANCH")
    if change.tested:
        source_tree.require_checked_out(Path(), change.tested)
    return f"git:{base}"


@dataclass(frozen=True)
class _Change:
    """What the CI system says of a pull request or merge request, ``""`` where it says nothing."""

    base: str = ""
    """A commit of the target branch."""
    branch: str = ""
    """The target branch."""
    head: str = ""
    """The last commit of the change, which a merge of it has as its second parent."""
    tested: str = ""
    """The commit that the job is about: the head, or the system's own merge of it."""


def _change() -> _Change:
    get = os.environ.get
    if path := get("GITHUB_EVENT_PATH"):
        try:
            event: Any = json.loads(read_text(Path(path)))
            if pull := event.get("pull_request"):
                return _Change(pull["base"]["sha"], pull["base"]["ref"], pull["head"]["sha"], pull["head"]["sha"])
            if group := event.get("merge_group"):  # of a merge queue
                return _Change(group["base_sha"], tested=group["head_sha"])
        except (AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
            fix = "unset GITHUB_EVENT_PATH and add --base BRANCH"
            raise ReportError(f"{brief(path)} is no event of GitHub ({described(error)}); {fix}") from None
    if not (base := get("CI_MERGE_REQUEST_DIFF_BASE_SHA", "")):
        return _Change()
    # A merge train may test a squashed or rebased copy of the head, so the head need not be in what is checked out.
    head, branch = get("CI_MERGE_REQUEST_SOURCE_BRANCH_SHA", ""), get("CI_MERGE_REQUEST_TARGET_BRANCH_NAME", "")
    return _Change(base, branch, head, get("CI_COMMIT_SHA", ""))


def _link() -> str:
    """Return the address of this job's run, ``""`` if it is unknown."""
    get = os.environ.get
    if run := get("GITHUB_RUN_ID"):
        return f"{get('GITHUB_SERVER_URL', '')}/{get('GITHUB_REPOSITORY', '')}/actions/runs/{run}"
    return get("CI_JOB_URL", "")


def _complain(text: str) -> None:
    if os.environ.get("GITHUB_ACTIONS") == "true":
        print(markdown.error_annotation(text), flush=True)
    else:
        say(f"tfbench: {text}", error=True)


def _tell_github(**outputs: object) -> None:
    if path := os.environ.get("GITHUB_OUTPUT"):
        with Path(path).open("a", encoding="utf-8") as file:
            file.writelines(f"{name}={value}\n" for name, value in outputs.items())


def add_gate(parser: argparse.ArgumentParser) -> None:
    # fmt: off
    option = parser.add_argument
    parser.set_defaults(intermixed="reports")
    option("reports", metavar="REPORT", nargs="*", help="a report of --report-json, all shards of a run, a folder or archive of them, or the folder of a fleet")
    option("--accepted", type=Path, metavar="FILE", help="accepted regressions, see docs/ci.md")
    _add_min_compared(parser)
    option("--output", type=Path, metavar="DIR", help="write the merged report and the accepted regressions")
    option("--comment", type=Path, metavar="FILE", help="write the result as Markdown, for a comment")
    option("--link", default="", metavar="URL", help="with --comment: address of the full report")
    option("--conclusion", default="", metavar="WORD", help="with --comment, for an untrusted report: GitHub's conclusion of the run, for the headline")
    option("--commit", default="", metavar="SHA", help="with --conclusion: the commit of the run, for the headline")
    option("--changed-files", type=Path, metavar="FILE", help="with --conclusion: names of the pull request's changed files, one per line, to flag changes of the gate itself")
    # fmt: on


def _add_min_compared(parser: argparse.ArgumentParser) -> None:
    text = "least share of the cases whose times must have been compared (default: %(default)s)"
    default = Policy().min_compared
    parser.add_argument("--min-compared", type=float, default=default, metavar="SHARE", help=text)


def _check_share(arguments: argparse.Namespace) -> None:
    if not 0 <= arguments.min_compared <= 1:
        raise UsageError(f"--min-compared {arguments.min_compared:g}: write a share from 0 to 1")


def run_gate(arguments: argparse.Namespace) -> int:
    """Merge the shards of a run, decide by the exit code whether it passes, and print why not.

    0: enough cases were compared and none is slower. 1: a case regressed. 2: the command line is wrong. 3: a case is
    inconclusive. 4: a case is incomparable or missing, or no case was compared with a baseline. 5: a case broke, the run
    was interrupted, the report cannot be read, or an accepted regression has expired or is no longer needed. A regression
    takes precedence over all other codes, and then the largest code counts.

    Each shard must be present once, with all of its cases, and with the same policy, sides and kind of machine. It must be
    of the code that is checked out.

    On GitHub's runners, it also annotates the lines of the benchmarks and writes the step summary.

    With --conclusion, the report may come from a job that ran untrusted code. tfbench then limits its size and checks it
    against a strict schema, and no part of it can become markup, a link or a mention. The headline of the comment says what
    GitHub knows of the run, which a report cannot forge. Without a report, the comment says that there is none.
    """
    _check_share(arguments)
    if (github := _run(arguments)) is not None:
        return _comment_on(arguments, github)
    if not arguments.reports:
        raise UsageError("give a REPORT, or --comment and --conclusion for a run without one")
    report = _whole([Path(report) for report in arguments.reports])
    if arguments.output:
        write_whole(arguments.output / REPORT, json_format.lines(report))
    return _decide(arguments, report, arguments.accepted).ruling.result.code


def _whole(paths: Sequence[Path]) -> Report:
    """Read a report, or merge those of all shards of a run or of all jobs of a fleet."""
    if len(paths) == 1:
        from tfbench.fleet import jobs

        if (paths[0] / jobs.PLAN).is_file():
            return jobs.merge(jobs.FleetFolder(paths[0]), {})
    reports = artifact.load_reports(paths)
    for name, report in reports:
        if report.shard:
            _check_code(name, report)
    return merge(reports)


def _check_code(name: str, report: Report) -> None:
    """Refuse a shard of other code than the one checked out, such as one that an earlier run has left behind.

    Jobs may have different new files, such as those of an installation, so those do not count.
    Raises `ReportError` if it is on another commit, or a tracked file was edited since.
    """
    here, raced = source_tree.working_code(_root_of(report)), report.sides.get("contender", {})
    if not (here.commit and raced.get("commit")):  # no checkout
        return
    if raced["commit"] != here.commit or (raced.get("tree") != here.tree and source_tree.has_edits(_root_of(report))):
        is_raced, is_here = code_of_side(raced), code_of_side(asdict(here))
        raise ReportError(f"{name} is of {is_raced}, and {is_here} is checked out; race the shard again")


def _root_of(report: Report) -> Path:
    """Return the root of the report's cases if it is this folder or below it, otherwise this folder."""
    root, here = str(report.sides.get("contender", {}).get("root", "")), Path.cwd().resolve()
    with suppress(OSError, ValueError):  # the text may be anything
        place = Path(root).resolve()
        if root and place.is_relative_to(here) and place.is_dir():
            return place
    return here


def _from(folder: str, report: Report, name: str) -> str:
    """Return the name of a case with the path of its file from a folder, ``""`` for the current one."""
    file, separator, rest = name.partition("::")
    return f"{os.path.relpath(_root_of(report) / file, os.path.realpath(folder))}{separator}{rest}"


def _decide(arguments: argparse.Namespace, report: Report, accepted: Path | None) -> GateDecision:
    """Decide, write the accepted regressions beside the report, and tell people and GitHub."""
    agreed = _agreed(report, accepted)
    if arguments.output:
        write_whole(arguments.output / artifact.ACCEPTED, artifact.as_json(agreed))
    decision = decided(report, agreed, min_compared=arguments.min_compared)
    if arguments.comment:
        write_whole(arguments.comment, markdown.render_comment(report, decision, arguments.link or _link()))
    announce(report, decision)
    _tell_github(code=decision.ruling.result.code)
    return decision


def _comment_on(arguments: argparse.Namespace, github: markdown.GithubRun) -> int:
    """Write the comment on an untrusted report."""
    code = Result.ERROR.code
    try:
        if len(arguments.reports) != 1:
            raise ReportError(f"--conclusion is for one report, not {len(arguments.reports)}")
        report, agreed = artifact.load_artifact(Path(arguments.reports[0]))
        decision = decided(report, agreed, min_compared=arguments.min_compared)
        text, code = markdown.render_comment(report, decision, arguments.link, github), decision.ruling.result.code
    except ReportError as error:
        _complain(str(error))
        text = markdown.without_report(github, _UNUSABLE, arguments.link)
    write_whole(arguments.comment, text)
    return code


def _run(arguments: argparse.Namespace) -> markdown.GithubRun | None:
    """Check what the command line says of the run; raises `UsageError` if a value has another form than GitHub's."""
    for option, value, form in (
        ("--conclusion", arguments.conclusion, r"[a-z_]{0,30}"),
        ("--commit", arguments.commit, r"(?:[0-9a-f]{7,64})?"),
        ("--link", arguments.link, r"(?:https?://[\w.:/?=&%#~-]{1,500})?"),
    ):
        if not re.fullmatch(form, value, re.ASCII):
            raise UsageError(f"{option} {brief(repr(value))} is not what GitHub gives")
    if not arguments.conclusion:
        return None
    if not arguments.comment:
        raise UsageError("--conclusion is for a comment; add --comment FILE")
    changed = read_text(arguments.changed_files).splitlines() if arguments.changed_files else []
    return markdown.GithubRun(arguments.conclusion, arguments.commit, artifact.own_files(changed))


def _agreed(report: Report, file: Path | None) -> list[Entry]:
    """Read a file of accepted regressions, and leave out the entries that are also in the baseline's tree, if it is another one.

    What such an entry accepts is in the baseline by now, so it must neither cover a further slowdown nor fail other changes.
    Raises `UsageError` if this clone does not have that tree.
    """
    entries = artifact.load_accepted(file) if file else []
    mine, tree = (report.sides.get(side, {}).get("tree", "") for side in ("contender", "baseline"))
    before: list[Entry] = []
    if file and entries and tree not in ("", mine) and ":" not in tree:  # another tree of git
        try:
            text = source_tree.file_in(Path(), tree, file)
        except SideError as error:
            raise UsageError(f"{brief(file)}: which entries the baseline has already is unknown; {error}") from None
        with suppress(UsageError):
            before = artifact.accepted_in(text, file)
    for entry in (merged := [entry for entry in entries if entry in before]):
        say(
            f"{entry.case}: the acceptance has served its purpose, because the baseline has it as well; remove the entry"
        )
    return [entry for entry in entries if entry not in merged]


def announce(report: Report, decision: GateDecision) -> None:
    """Print a decision, and on GitHub's runners annotate the benchmarks and write the step summary."""
    ruling, console = decision.ruling, Screen(soft_wrap=True)
    github = os.environ.get("GITHUB_ACTIONS") == "true"
    for verdict, entry in decision.accepted:
        console.print(Text(f"accepted until {entry.until}: {verdict.case.name}: {entry.reason}", "dim"))
    for verdict in ruling.verdicts:
        metric = "" if verdict.metric == TIME else f" ({verdict.metric})"
        outcome = Text(str(verdict.outcome), COLOURS[verdict.outcome])
        console.print(Text.assemble(outcome, f" {verdict.case.name}{metric}: {verdict.reason.message}"))
        if verdict.metric == TIME and verdict.outcome is Outcome.REGRESSED:
            for line in report.why(verdict.case.name):
                console.print(Text(f"  {line}"))
        if github:
            name, workspace = verdict.case.name, os.environ.get("GITHUB_WORKSPACE", "")
            # escaped by itself
            print(markdown.annotation(verdict, line_of(_root_of(report), name), _from(workspace, report, name)))
    for problem in decision.problems:
        console.print(Text(problem, "red"))
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        with Path(summary).open("a", encoding="utf-8") as file:
            file.write(markdown.render_comment(report, decision))
    if github and ruling.result is not Result.PASS:
        print(markdown.headline_annotation(ruling))
    for skip in report.skips:
        console.print(Text(f"skipped {skip.case.name}: {skip.reason}", "dim"))
    console.print(Text.assemble((str(ruling.result), ruling.result.style), f": {ruling.because}"))
