"""The comment on a pull request.

In their Markdown and workflow commands, no text of a report can act as markup, link, mention or command.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfbench.model import JSON, TIME, Outcome, Report, Verdict
from tfbench.model.words import times
from tfbench.report.summary import command_for, explanation
from tfbench.ruling import GateDecision, Result, Ruling, result_of
from tfbench.untrusted import plural, printable

# Say what the sides were: their code, and their differences apart from the compared version


_ASKED = ("tensorflow", "tf-nightly")
"""Prefixes of the compared packages. Packages that belong to TensorFlow, such as tensorflow-io, change with it."""


def differences(sides: Mapping[str, JSON]) -> list[str]:
    """Describe each difference in one line: Python, packages, settings and the defaults of a version.

    Args:
        sides: Label -> description of the side. Unknown values are not a difference.
    """
    known = {label: facts for label, side in sides.items() if (facts := _facts(side))}
    lines = []
    for name in dict.fromkeys(name for facts in known.values() for name in facts):
        found = {label: facts.get(name, "none") for label, facts in known.items()}
        values = dict.fromkeys(found.values())
        if len(values) > 1:  # list each value once: "off on 2.15.1, on on 2.16.2 and 2.21.0"
            labels = {value: " and ".join(label for label in found if found[label] == value) for value in values}
            lines.append(f"{name}: {', '.join(f'{value} on {ones}' for value, ones in labels.items())}")
    return lines


def _facts(side: JSON) -> dict[str, str]:
    if "packages" not in side:
        return {}
    packages = {name: version for name, version in side["packages"].items() if not name.startswith(_ASKED)}
    return {"Python": side.get("python", ""), **side.get("defaults", {}), **packages, **side.get("settings", {})}


def code_of_side(side: JSON) -> str:
    """Name the code of a side, ``commit 1a2b3c4d5e6f, changed (tree 6f5e4d3c2b1a)``; ``absent`` if it is not known."""
    commit, tree = str(side.get("commit", "")), str(side.get("tree", ""))
    kind, _, rest = tree.partition(":")
    words = {"": "absent", "sources": f"sources {rest[:12]}", "session": f"run {rest}"}.get(kind, f"tree {kind[:12]}")
    return f"commit {commit[:12]}{', changed' if side.get('dirty') else ''} ({words})" if commit else words


# Render the comment on a pull request and annotations of its code


MARK = "<!-- tfbench -->"
"""Marks the comment, so that a later run finds and replaces it."""
LONGEST = 60_000
"""Maximum characters. GitHub allows 65,536."""
_ROWS, _WORDS, _CODE = 25, 400, 2000
"""Maximum rows per table, and characters per reason and per name. The report has the rest."""
_BREAK = "\u2060"
"""An invisible word joiner. Inside a mention, link or reference, it disables it."""
_PUNCTUATION = re.compile(r"([\\`*_{}\[\]()#+\-!|~$])")

_SUCCESS = "success"
_CONCLUSIONS = {"failure": "failed", "timed_out": "timed out"}


@dataclass(frozen=True)
class GithubRun:
    """A run as GitHub knows it."""

    conclusion: str
    """GitHub's word, such as ``success``."""
    commit: str = ""
    own_files: Sequence[str] = ()
    """Changed files that are part of the gate, see `tfbench.report.artifact`."""


def render(report: Report, decision: GateDecision, link: str = "", run: GithubRun | None = None) -> str:
    """Render the comment.

    Args:
        decision: Of the gate on the report.
        link: Address of the full report.
        run: The run as GitHub knows it, which a report cannot forge.
    """
    ruling, agreed, problems = decision.ruling, decision.accepted.verdicts, decision.accepted.problems
    parts = [MARK, *_head(ruling, run), context_line(report)]
    if verdicts := ruling.verdicts:
        parts += [_table(verdicts), _next_steps(report, verdicts), _why(report, verdicts)]
    if problems:
        parts.append("\n".join(["Accepted regressions to remove:", "", *(f"- {plain(one)}" for one in problems)]))
    if agreed:
        rows = [
            f"- {code(verdict.case.name)}, until {plain(str(entry.until))}: {plain(entry.reason)}"
            for verdict, entry in agreed[:_ROWS]
        ]
        parts.append(folded(f"{len(agreed)} accepted", "\n".join(rows + _and_more(agreed))))
    if better := [one for one in report.verdicts if one.outcome is Outcome.IMPROVED and one.metric == TIME]:
        parts.append(folded(f"{len(better)} faster", _table(better)))
    if lines := differences(report.sides):
        parts.append(folded("differences between the sides", "\n".join(f"- {plain(line)}" for line in lines)))
    if link:
        parts.append(f"[Full report]({link})")
    return _whole(parts)


def without_report(run: GithubRun, why: str, link: str = "") -> str:
    """Render the comment on a run whose report is absent or unusable."""
    parts = [MARK, _title(run, None), f"There is no usable report: {plain(why)}.", _own_files(run)]
    return _whole([*parts, f"[The run]({link})" if link else ""])


def _whole(parts: Sequence[str]) -> str:
    text = "\n\n".join(part for part in parts if part) + "\n"
    if len(text) > LONGEST:
        text = f"{text[:LONGEST].rpartition(chr(10))[0]}\n\n… truncated: see the report for the rest\n"
    return text


def _head(ruling: Ruling, run: GithubRun | None) -> list[str]:
    if run is None:
        return [f"### tfbench: {ruling.result}", f"{plain(ruling.because)}."]
    # A job may tolerate inconclusive cases, see the input strict of action.yml.
    agrees = (run.conclusion == _SUCCESS) == (ruling.result is Result.PASS) or ruling.result is Result.INCONCLUSIVE
    warning = "" if agrees else "**The report and the conclusion of the run disagree.** Trust neither before a review."
    said = f"The report of the run says {ruling.result}: {plain(ruling.because)}."
    return [_title(run, ruling.result), said, warning, _own_files(run)]


def _title(run: GithubRun, result: Result | None) -> str:
    """Return the title: GitHub's word on a run that failed, else the report's, which can only be a worse one."""
    word = _CONCLUSIONS.get(run.conclusion, run.conclusion.replace("_", " "))
    if run.conclusion == _SUCCESS:
        word = str(result or "no report")
    elif result not in (None, Result.PASS):
        word = f"{word}, {result}"
    return f"### tfbench: {plain(word)}" + (f" ({code(run.commit[:12])})" if run.commit else "")


def _own_files(run: GithubRun) -> str:
    if not run.own_files:
        return ""
    names = ", ".join(code(name) for name in run.own_files[:_ROWS])
    more = f" and {len(run.own_files) - _ROWS} more" if len(run.own_files) > _ROWS else ""
    return f"**The pull request changes what the gate itself runs**, so its result needs a review: {names}{more}"


def code(text: str) -> str:
    """Format as code, in which GitHub reads no mention, link or markup."""
    return verbatim(text).replace("|", "\\|")


def verbatim(text: str) -> str:
    """Format as code outside of a table, where GitHub shows the backslash of an escaped bar."""
    shown = " ".join(printable(text[:_CODE]).replace("`", "'").split())
    return f"`{shown or ' '}`"


def plain(text: str) -> str:
    """Format as text: escape markup, and break links, mentions and references."""
    if len(short := " ".join(printable(text).split())) > _WORDS:
        short = f"{short[: _WORDS - 1]}…"
    broken = re.sub(r"@|#|:(?=//)|www(?=\.)|GH(?=-)", lambda found: f"{found[0]}{_BREAK}", short)
    return _PUNCTUATION.sub(r"\\\1", html.escape(broken, quote=False))


def context_line(report: Report) -> str:
    sides = report.sides
    cases = len({verdict.case.name for verdict in report.verdicts})
    parts = [
        f"{plural(cases, 'case')}{_at('of', sides.get('contender', {}))}",
        f"policy {plain(str(report.policy['name']))}",
    ]
    if "baseline" in sides:
        parts.append(f"against {code(str(sides['baseline'].get('spec', '')))}{_at('at', sides['baseline'])}")
    machine = sides.get("contender", {}).get("machine")
    if isinstance(machine, dict) and machine:
        parts.append(f"on {plain(str(machine.get('gpus') or machine.get('processor') or 'a machine'))}")
    return f"{', '.join(parts)}, {report.wall_seconds:.0f} s."


def _at(word: str, side: JSON) -> str:
    return f" {word} {plain(code_of_side(side))}" if side.get("tree") else ""


def _table(verdicts: Sequence[Verdict]) -> str:
    lines = ["| verdict | case | metric | ratio | why |", "| --- | --- | --- | --- | --- |"]
    for one in verdicts[:_ROWS]:
        texts = (one.metric, times(one.ratio) if one.ratio else "", explanation(one))
        lines.append(f"| {' | '.join([str(one.outcome), code(one.case.name), *map(plain, texts)])} |")
    return "\n".join(lines + _and_more(verdicts))


def _and_more(rows: Sequence[object]) -> list[str]:
    return ["", f"… and {len(rows) - _ROWS} more"] if len(rows) > _ROWS else []


def _why(report: Report, verdicts: Sequence[Verdict]) -> str:
    """List the causes of each regression, from profiles."""
    cases = dict.fromkeys(one.case.name for one in verdicts if one.outcome is Outcome.REGRESSED)
    blocks = [
        "\n".join([f"- {code(case)}", *(f"  - {plain(line)}" for line in why)])
        for case in cases
        if (why := report.why(case))
    ]
    return folded("causes, from profiles of both sides", "\n".join(blocks[:_ROWS])) if blocks else ""


def _next_steps(report: Report, verdicts: Sequence[Verdict]) -> str:
    """Say how to go on. A command is shown only where each of its parts is of a form that can do no harm."""
    side = report.sides.get("baseline", {})
    cases = [one.case.name for one in verdicts if one.outcome is not Outcome.MISSING]
    if not side or not cases:
        return ""
    accept = "If it is intended, add it to the file of accepted regressions, with a reason and an end."
    again = command_for(report, next(one for one in verdicts if one.case.name == cases[0]), shared=True)
    if not again:
        return f"To reproduce it, race the case against the other side with `pytest --benchmark --against`. {accept}"
    if "saved" in side:
        why = "To see the cause: add `--profile-on-regression`."
    else:
        why = "To see changes in the graph: `tfbench explain` with the same case and `--against`."
    return f"To reproduce it: {verbatim(again)}. {why} {accept}"


def folded(summary: str, text: str) -> str:
    return f"<details><summary>{html.escape(summary)}</summary>\n\n{text}\n\n</details>"


def annotation(verdict: Verdict, line: int | None) -> str:
    """Build a workflow command, which GitHub's runner reads from the output of a job, to show a verdict at its benchmark.

    Args:
        line: First line of the benchmark in its file, if known.
    """
    metric = "" if verdict.metric == TIME else f" {verdict.metric}"
    fields = {"title": f"{verdict.outcome}{metric}: {verdict.case.short_name}"}
    if line is not None:
        fields = {"file": verdict.case.name.partition("::")[0], "line": str(line), **fields}
    return _command(result_of(verdict.outcome), fields, verdict.reason.message)


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
