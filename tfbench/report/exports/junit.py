"""JUnit XML: a test case for each case, with the outcome that pytest gives it."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

from tfbench.fs import write_whole
from tfbench.model import TIME, Outcome, Report, Verdict
from tfbench.ruling import grave, result_of

_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 cannot hold."""


def export(report: Report, target: str) -> str:
    """Write the file.

    Raises:
        OSError: It cannot be written.
    """
    rows: dict[str, list[Verdict]] = defaultdict(list)
    for row in report.verdicts:
        rows[row.case.name].append(row)
    suite = ElementTree.Element("testsuite", name="tfbench")
    for case, verdicts in rows.items():
        _add(suite, case, verdicts, report.seconds_by_case.get(case, verdicts[0].wall_seconds))
    for skip in report.skips:
        ElementTree.SubElement(_testcase(suite, skip.case.name, 0.0), "skipped", message=_text(skip.reason))
    counts = {tag: sum(1 for _ in suite.iter(tag)) for tag in ("failure", "error", "skipped")}
    suite.attrib |= {
        "tests": str(len(suite)), "failures": str(counts["failure"]), "errors": str(counts["error"]),
        "skipped": str(counts["skipped"]), "time": f"{report.wall_seconds:.3f}",
    }  # fmt: skip
    root = ElementTree.Element("testsuites", name="tfbench")
    root.append(suite)
    ElementTree.indent(root)
    content = ElementTree.tostring(root, encoding="unicode", xml_declaration=False)
    write_whole(Path(target), f'<?xml version="1.0" encoding="utf-8"?>\n{content}\n')
    return f"{target}: {len(suite)} test cases, {counts['failure']} failed, {counts['error']} with errors"


def _add(suite: ElementTree.Element, case: str, verdicts: list[Verdict], seconds: float) -> None:
    made = _testcase(suite, case, seconds)
    properties = ElementTree.SubElement(made, "properties")
    for row in verdicts:
        ElementTree.SubElement(properties, "property", name=_text(row.metric), value=row.outcome.value)
        if row.metric == TIME and row.ratio is not None:
            ElementTree.SubElement(properties, "property", name="ratio", value=f"{row.ratio.center:.4f}")
    if not (bad := grave(verdicts)):
        return
    outcome = bad[0].outcome
    tag = "error" if outcome is Outcome.ERROR else {"failed": "failure"}.get(result_of(outcome).test, "skipped")
    lines = [f"{row.metric} {row.outcome}: {row.reason.message}" for row in bad if row.outcome is outcome]
    found = ElementTree.SubElement(made, tag, message=_text(lines[0]))
    if tag != "skipped":
        found.set("type", outcome.value)
    found.text = _text("\n".join(lines))


def _testcase(suite: ElementTree.Element, case: str, seconds: float) -> ElementTree.Element:
    """Add a test case under the names that pytest's own file has."""
    path, _, name = case.partition("::")
    module = re.sub(r"\.py$", "", path).replace("/", ".")
    *classes, short = re.split(r"::(?![^\[]*\])", name or path)
    return ElementTree.SubElement(
        suite, "testcase", classname=_text(".".join([module, *classes])), name=_text(short), time=f"{seconds:.3f}"
    )


def _text(text: str) -> str:
    return _NO_XML.sub("\N{REPLACEMENT CHARACTER}", text)
