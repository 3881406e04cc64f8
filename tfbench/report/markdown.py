"""Render a report as Markdown and as the comment on a pull request, and its verdicts as annotations of the code.

In Markdown and in workflow commands, no text of a report acts as markup, link, mention or command.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tfbench.model import JSON, TIME, Outcome, Report, Verdict
from tfbench.model.words import times
from tfbench.report import summary as summaries
from tfbench.ruling import GateDecision, Result, Ruling, result_of
from tfbench.untrusted import plural, printable, some

# Text that GitHub shows as it is


LONGEST = 60_000
"""Maximum characters. GitHub allows 65,536."""
_NAMES, _WORDS, _CODE = 25, 400, 2000
"""Maximum files that are named, and characters per reason and per name. The report has the rest."""
_BREAK = "\u2060"
"""An invisible word joiner. Inside a mention, link or reference, it disables it."""
_PUNCTUATION = re.compile(r"([\\`*_{}\[\]()#+\-!|~$])")


def code(text: str) -> str:
    """Format as code, in which GitHub reads no mention, link or markup; in a cell of a table, a bar has to be escaped."""
    shown = " ".join(printable(text[:_CODE]).replace("`", "'").split())
    return f"`{shown or ' '}`"


def plain(text: str) -> str:
    """Format as text: escape markup, and break links, mentions and references."""
    if len(short := " ".join(printable(text).split())) > _WORDS:
        short = f"{short[: _WORDS - 1]}…"
    broken = re.sub(r"@|#|:(?=//)|www(?=\.)|GH(?=-)", lambda match: f"{match[0]}{_BREAK}", short)
    return _PUNCTUATION.sub(r"\\\1", html.escape(broken, quote=False))


def folded(summary: str, text: str) -> str:
    return f"<details><summary>{html.escape(summary)}</summary>\n\n{text}\n\n</details>"


def context_line(report: Report) -> str:
    sides = report.sides
    cases = len({verdict.case.name for verdict in report.verdicts})
    contender = sides.get("contender", {})
    parts = [f"{plural(cases, 'case')}{_at('of', contender)}", f"policy {plain(str(report.policy['name']))}"]
    if "baseline" in sides:
        parts.append(f"against {code(str(sides['baseline'].get('spec', '')))}{_at('at', sides['baseline'])}")
    machine = contender.get("machine")
    if isinstance(machine, dict) and machine:
        parts.append(f"on {plain(str(machine.get('gpus') or machine.get('processor') or 'a machine'))}")
    return f"{', '.join(parts)}, {report.wall_seconds:.0f} s."


def _at(word: str, side: JSON) -> str:
    return f" {word} {plain(summaries.code_of_side(side))}" if side.get("tree") else ""


# Render Markdown: the verdict first, the rest folded, and cut by severity

_OPEN = (summaries.Group.REGRESSIONS, summaries.Group.ERRORS)
"""Parts that are shown at once; the others are folded."""
_RESERVE = 2_000
"""Characters kept for the titles of parts without room, and for the lines that say what was left out."""


def render(report: Report, *, strict: bool = False) -> str:
    """Render the report. Of more than `LONGEST` characters, the least severe rows are left out and counted."""
    summary = summaries.summarize(report, strict=strict)
    head = [f"**tfbench: {plain(summary.headline)}**", context_line(report)]
    head += [f"{plain(summary.reason)}."] if summary.reason else []
    return _whole([*head, *_fitted(_findings(report, summary), head)])


def _fitted(parts: Iterable[Part], others: Sequence[str]) -> Iterator[str]:
    """Yield the parts. Rows that leave no room for the ``others`` are left out and counted."""
    room = LONGEST - _RESERVE - sum(map(len, others))
    for title, rows, open_ in parts:
        taken = _taken(rows, room - len(title) - 200)
        room -= sum(len(row) + 1 for row in taken) + len(title) + 200
        rest = len(rows) - len(taken)
        lines = "\n".join([*taken, *([f"- … and {rest} more: see the report"] if rest else [])])
        yield f"### {title}\n\n{lines}" if open_ else folded(title, lines)


def _taken(rows: Sequence[str], room: int) -> list[str]:
    """Return the first rows that fit."""
    taken = []
    for row in rows:
        if (room := room - len(row) - 1) < 0:
            break
        taken.append(row)
    return taken


Part = tuple[str, list[str], bool]
"""Title, rows, and whether they are shown without a click."""


def _findings(report: Report, summary: summaries.Summary) -> Iterator[Part]:
    """Yield edits of what judges both sides, what a reader must know, the most severe first, and how the sides differ."""
    if lines := summaries.yardstick_lines(report):
        yield summaries.YARDSTICK.capitalize(), [f"- {plain(line)}" for line in lines], True
    severe = any(summary.findings[group] for group in _OPEN)
    for group in (*_OPEN, summaries.Group.INCONCLUSIVE, summaries.Group.UNGATED, summaries.Group.IMPROVEMENTS):
        if findings := summary.findings[group]:
            open_ = group in _OPEN or (group is summaries.Group.INCONCLUSIVE and not severe)
            rows = [_row(finding, again=open_) for finding in findings]
            yield f"{group.value.capitalize()} ({len(rows)})" if open_ else f"{len(rows)} {group.value}", rows, open_
    if lines := summaries.differences(report.sides):
        yield "differences between the sides", [f"- {plain(line)}" for line in lines], False
    if lines := summaries.skip_lines(report):
        yield plural(len(report.skips), "skipped case"), [f"- {plain(line)}" for line in lines], False


def _row(finding: summaries.CaseFinding, *, again: bool) -> str:
    timed = [finding.sides("→"), times(finding.ratio)] if finding.ratio else []
    ratio = "".join(f", {plain(words)}" for words in timed if words)
    head = f"- {code(finding.case.name)}: {plain(finding.what)}{ratio}"
    lines = [head, *(f"  - {plain(detail)}" for detail in finding.why)]
    if again and finding.command:
        lines.append(f"  - race it again: {code(finding.command)}")
    return "\n".join(lines)


def side_by_side(cases: summaries.CaseTable) -> str:
    """Return a table of the times of several files or versions."""
    rows = [["case", *map(plain, cases.labels)], ["---"] * (len(cases.labels) + 1)]
    # A bar that follows two backslashes ends the cell, and the rest of the name would be no code.
    rows += [[re.sub(r"\\*\|", r"\\|", code(name)), *map(plain, cells)] for name, *cells in cases.rows]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    taken = _taken(lines, LONGEST - _RESERVE - len(cases.caption))
    more = [f"\n… and {len(lines) - len(taken):,} more cases: --html has all"] if len(taken) < len(lines) else []
    return f"{plain(cases.caption)}\n\n" + "".join(f"{line}\n" for line in (*taken, *more))


# Render the comment on a pull request


MARK = "<!-- tfbench -->"
"""Marks the comment, so that a later run finds and replaces it."""
_SUCCESS = "success"


@dataclass(frozen=True)
class GithubRun:
    """A run as GitHub knows it."""

    conclusion: str
    """GitHub's word, such as ``success``."""
    commit: str = ""
    own_files: Sequence[str] = ()
    """Changed files that are part of the gate, see `tfbench.report.artifact`."""


def render_comment(report: Report, decision: GateDecision, link: str = "", run: GithubRun | None = None) -> str:
    """Render the comment.

    ``link`` is the address of the full report, and ``run`` the run as GitHub knows it, which a report cannot forge.
    """
    ruling, agreed = decision.ruling, decision.accepted
    accepted = [verdict for verdict, _ in agreed]
    rest = replace(report, verdicts=tuple(verdict for verdict in report.verdicts if verdict not in accepted))
    head = [MARK, *_head(ruling, run), context_line(report)]
    if any(verdict.outcome is Outcome.REGRESSED for verdict in ruling.verdicts):
        head.append("Add an intended regression to the file of accepted regressions, with a reason and an end.")
    parts = list(_findings(rest, summaries.summarize(rest)))
    if problems := [f"- {plain(problem)}" for problem in decision.problems]:
        parts.insert(0, ("Accepted regressions to remove", problems, True))
    if rows := [
        f"- {code(verdict.case.name)}, until {plain(str(entry.until))}: {plain(entry.reason)}"
        for verdict, entry in agreed
    ]:
        parts.append((f"{len(rows)} accepted", rows, False))
    end = f"[Full report]({link})" if link else ""
    return _whole([*head, *_fitted(parts, [*head, end]), end])


def without_report(run: GithubRun, why: str, link: str = "") -> str:
    """Render the comment on a run whose report is absent or unusable."""
    parts = [MARK, _title(run, None), f"There is no usable report: {plain(why)}.", _own_files(run)]
    return _whole([*parts, f"[The run]({link})" if link else ""])


def _whole(parts: Sequence[str]) -> str:
    return "\n\n".join(filter(None, parts)) + "\n"


def _head(ruling: Ruling, run: GithubRun | None) -> list[str]:
    if run is None:
        return [f"### tfbench: {ruling.result}", f"{plain(ruling.because)}."]
    # A job may tolerate inconclusive cases beside enough others, see the input strict of action.yml.
    tolerated = ruling.result is Result.INCONCLUSIVE and ruling.tolerable
    agrees = tolerated or (run.conclusion == _SUCCESS) == (ruling.result is Result.PASS)
    warning = "" if agrees else "**The report and the conclusion of the run disagree.** Trust neither before a review."
    said = f"The report of the run says {ruling.result}: {plain(ruling.because)}."
    return [_title(run, ruling.result), said, warning, _own_files(run)]


def _title(run: GithubRun, result: Result | None) -> str:
    """Return the title: GitHub's word on a run that failed, else the report's, which can only be a worse one."""
    word = run.conclusion.replace("failure", "failed").replace("_", " ")
    if run.conclusion == _SUCCESS:
        word = str(result or "no report")
    elif result not in (None, Result.PASS):
        word = f"{word}, {result}"
    return f"### tfbench: {plain(word)}" + (f" ({code(run.commit[:12])})" if run.commit else "")


def _own_files(run: GithubRun) -> str:
    if not run.own_files:
        return ""
    names = some([code(name) for name in run.own_files], _NAMES)
    return f"**The pull request changes what the gate itself runs**, so its result needs a review: {names}"


# Annotate the code of a pull request by workflow commands


def annotation(verdict: Verdict, line: int | None, name: str) -> str:
    """Build a workflow command, which GitHub's runner reads from the output of a job, to show a verdict at its benchmark.

    ``line`` is the first one of the benchmark in its file, if known, and ``name`` that of the case in the repository.
    """
    metric = "" if verdict.metric == TIME else f" {verdict.metric}"
    fields = {"title": f"{verdict.outcome}{metric}: {verdict.case.short_name}"}
    if line is not None:
        fields = {"file": name.partition("::")[0], "line": str(line), **fields}
    return _command(result_of(verdict), fields, verdict.reason.message)


def headline_annotation(ruling: Ruling) -> str:
    """Build a workflow command that shows the answer on the run."""
    return _command(ruling.result, {"title": f"tfbench: {ruling.result}"}, ruling.because)


def error_annotation(text: str) -> str:
    """Build a workflow command that shows a failure of the gate itself on the run."""
    return _command(Result.ERROR, {"title": "tfbench"}, text)


def _command(result: Result, fields: Mapping[str, str], message: str) -> str:
    properties = ",".join(f"{key}={_encoded(value, ':,')}" for key, value in fields.items())
    return f"::{result.level} {properties}::{_encoded(message)}"


def _encoded(value: str, more: str = "") -> str:
    return printable(value).translate({ord(mark): f"%{ord(mark):02X}" for mark in f"%\r\n{more}"})
