"""The comment on a pull request: Markdown in which nothing of a report can be markup, a link or a mention."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from tfbench.model import TIME, Outcome, Report, Verdict
from tfbench.report.differences import differences
from tfbench.report.units import times

MARK = "<!-- tfbench -->"
"""By which the comment of an earlier run is found, to be replaced."""
LONGEST = 60_000
"""Characters. GitHub takes 65,536."""
_ROWS, _WORDS = 25, 400
"""Rows of a table, and characters of a reason: the report has the rest."""
_BREAK = "\u2060"
"""Joins words without being seen: a mention, a link or a reference with one in it is none."""
_PUNCTUATION = re.compile(r"([\\`*_{}\[\]()#+\-!|~$])")

Agreed = Sequence[tuple[Verdict, str, str]]
"""Verdicts that were agreed to, with the reason and the last day."""


def render(
    report: Report,
    word: str,
    because: str,
    verdicts: Sequence[Verdict],
    agreed: Agreed = (),
    problems: Sequence[str] = (),
    link: str = "",
) -> str:
    """The comment.

    Args:
        word: What the gate says.
        because: How many of what.
        verdicts: Those for which it is no pass, gravest first.
        problems: Agreements that have to go, in sentences.
        link: Where the whole report is.
    """
    parts = [MARK, f"### tfbench: {plain(word)}", f"{plain(because)}.", _setting(report)]
    if verdicts:
        parts.append(_table(verdicts))
        parts.append(_what_to_do(report, verdicts))
        parts.append(_why(report, verdicts))
    if problems:
        parts.append("\n".join(["What was accepted and has to go:", "", *(f"- {plain(one)}" for one in problems)]))
    if agreed:
        rows = [f"- {code(one.case.name)}, until {plain(day)}: {plain(reason)}" for one, reason, day in agreed[:_ROWS]]
        parts.append(_folded(f"{len(agreed)} accepted", "\n".join(rows + _and_more(agreed))))
    if better := [one for one in report.verdicts if one.outcome is Outcome.IMPROVED and one.metric == TIME]:
        parts.append(_folded(f"{len(better)} faster", _table(better)))
    if lines := differences(report.sides):
        parts.append(_folded("how the sides differ", "\n".join(f"- {plain(line)}" for line in lines)))
    if link:
        parts.append(f"[The whole report]({link})")
    text = "\n\n".join(part for part in parts if part) + "\n"
    return (
        text if len(text) <= LONGEST else f"{text[:LONGEST].rpartition(chr(10))[0]}\n\n… cut; the report has the rest\n"
    )


def code(text: str) -> str:
    """As code: no mention, link or markup is read in there."""
    return f"`{' '.join(text.replace('`', chr(39)).split()).replace('|', chr(92) + '|') or ' '}`"


def plain(text: str) -> str:
    """As words: what could be markup is escaped, and what could be a link, a mention or a reference is broken."""
    short = " ".join(text.split())
    short = short if len(short) <= _WORDS else f"{short[: _WORDS - 1]}…"
    broken = re.sub(r"@|#|:(?=//)|www(?=\.)|GH(?=-)", lambda found: f"{found[0]}{_BREAK}", short)
    return _PUNCTUATION.sub(r"\\\1", html.escape(broken, quote=False))


def _setting(report: Report) -> str:
    sides = report.sides
    cases = len({verdict.case.name for verdict in report.verdicts})
    what = f"{cases} case{'s' * (cases != 1)}, policy {plain(str(report.policy['name']))}"
    if "baseline" in sides:
        what += f", against {code(str(sides['baseline'].get('spec', '')))}"
    machine = sides.get("contender", {}).get("machine")
    if isinstance(machine, dict) and machine:
        what += f", on {plain(str(machine.get('gpus') or machine.get('processor') or 'a machine'))}"
    return f"{what}, {report.wall_seconds:.0f} s."


def _table(verdicts: Sequence[Verdict]) -> str:
    lines = ["| verdict | case | metric | ratio | why |", "| --- | --- | --- | --- | --- |"]
    for one in verdicts[:_ROWS]:
        ratio = times(one.ratio) if one.ratio else ""
        cells = [str(one.outcome), code(one.case.name), plain(one.metric), plain(ratio), plain(one.reason.message)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines + _and_more(verdicts))


def _and_more(rows: Sequence[object]) -> list[str]:
    return ["", f"… and {len(rows) - _ROWS} more"] if len(rows) > _ROWS else []


def _why(report: Report, verdicts: Sequence[Verdict]) -> str:
    """What the profiles of cases that regressed say of it."""
    cases = dict.fromkeys(one.case.name for one in verdicts if one.outcome is Outcome.REGRESSED)
    blocks = [
        "\n".join([f"- {code(case)}", *(f"  - {plain(line.removeprefix('profile: '))}" for line in why)])
        for case in cases
        if (why := report.why(case))
    ]
    return _folded("why, by profiles of both sides", "\n".join(blocks[:_ROWS])) if blocks else ""


def _what_to_do(report: Report, verdicts: Sequence[Verdict]) -> str:
    spec = str(report.sides.get("baseline", {}).get("spec", ""))
    cases = dict.fromkeys(one.case.name for one in verdicts if one.outcome is not Outcome.MISSING)
    if not spec or not cases:
        return ""
    command = f'pytest --benchmark --against "{spec}" "{next(iter(cases))}"'
    return (
        f"At your desk: {code(command)}. What changed in the graph: `tfbench explain` with the same case and "
        "`--against`. If it is meant, an entry in the file of accepted regressions says so, with a reason and an end."
    )


def _folded(summary: str, text: str) -> str:
    return f"<details><summary>{html.escape(summary)}</summary>\n\n{text}\n\n</details>"
