"""Find reported regressions again: race, bisect and name the cause of each, then print the table of docs/findings.md.

    python docs/findings/find.py                     # all that are not recorded; hours
    python docs/findings/find.py --only NAME         # one of docs/findings/reports.py, again
    python docs/findings/find.py --show              # the table, the page's copy of it, and the figure

The results are docs/findings/data.jsonl, written whole when the commands of a finding have ended, so an interrupted run
goes on where it stopped. The commands are printed and stored. `--show` needs the extra ``docs`` (matplotlib).
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from commands import PAGE, ROOT, Records, run, within
from packaging.version import Version
from reports import FINDINGS, MEMORY, OPS, TIME, Finding

from tfbench.fs import write_whole

DATA = Path(__file__).parent / "data.jsonl"
FIGURE = ROOT / "docs" / "figures" / "findings.svg"
BEGIN, END = "<!-- findings: begin -->", "<!-- findings: end -->"
"""Findings that the page shows with their commands."""
METRICS = {TIME: "time", MEMORY: "peak of host memory", OPS: "ops of the graph"}
POLICY = "quick"
"""Detects 5%, with a budget that three releases of a range fit into five minutes."""
SECONDS = 1800
"""Time limit of a command: six environments to build, and the races between them."""


def measure(finding: Finding) -> dict:
    """Run the commands of a finding; return what its file holds. A command that fails is a result too."""
    began = time.monotonic()
    found = {"race": bisect(finding, finding.good, finding.bad, causes=True)}
    if finding.fixed:
        # From the fixed release back to the slow one: the last that is not slower has the fix.
        found["fix"] = bisect(finding, finding.fixed, finding.fixed_from or finding.bad, causes=False)
    return {**found, "wall_seconds": round(time.monotonic() - began, 1)}


def bisect(finding: Finding, good: str, bad: str, causes: bool) -> dict:
    """Run `tfbench bisect` in a process; return its command, its seconds, and its report or last output."""
    words = ["bisect", "--good", good, "--bad", bad, finding.path, "-k", finding.case, "--policy", POLICY]
    words += ["--metric", finding.metric] if finding.metric != "time" else []
    words += ["--causes"] if causes else []
    return run(*words, seconds=SECONDS)


def case_of(run: dict) -> dict | None:
    """Return the bisected case of a command's report."""
    return run["report"]["cases"][0] if "report" in run else None


def end_of(run: dict) -> dict:
    """Return the race of the bad end; empty if it could not take place."""
    case = case_of(run)
    return case["steps"][0] if case and case["steps"] else {}


def reproduced(found: dict) -> bool:
    """Whether the bad end is worse: its race says regressed, and the interval lies above 1."""
    end = end_of(found["race"])
    return end.get("outcome") == "regressed" and bool(end.get("ratio")) and end["ratio"]["low"] > 1


def row(finding: Finding, found: dict) -> list[str]:
    """Return the cells of a finding in the table."""
    race, end = found["race"], end_of(found["race"])
    claim = "; ".join(filter(None, [", ".join(finding.threads) or "not reported", finding.claim]))
    if finding.refuted:
        return [f"`{finding.name}`", claim, f"not reproduced here: {finding.refuted}", "", "", "", finding.named, ""]
    if not reproduced(found):
        limit = f" ({finding.limit})" if finding.limit else ""
        failed = f": {(race['failed'].splitlines() or ['no output'])[-1]}" if "failed" in race else ""
        return [f"`{finding.name}`", claim, f"not reproduced here{limit}{failed}", "", "", "", finding.named, ""]
    case, ratio = case_of(race), end["ratio"]
    interval = "exact" if ratio["low"] == ratio["high"] else f"{ratio['low']:.2f} to {ratio['high']:.2f}"
    shown = f"{ratio['center']:.2f} ({interval})"
    cells = [f"`{finding.name}`", claim, shown, when(finding, found), METRICS[finding.metric]]
    lines = [
        *setting(finding),
        *([cause(case.get("causes", []))] if case.get("causes") or not setting(finding) else []),
    ]
    return [*cells, "; ".join(lines), finding.named, fix(finding, found)]


def setting(finding: Finding) -> list[str]:
    """Return the settings of the good side that the bad side does not have. Nothing else differs, if there are any."""
    added = [part for part in finding.good.split("+") if part not in finding.bad.split("+")]
    return [f"{part} removes it" for part in added if part.startswith(("env:", "python=="))]


def cause(lines: Sequence[str]) -> str:
    """Return the first line of a cause. That Python waits for ops says nothing about which."""
    telling = [line for line in lines if not line.startswith("Python: tensorflow.python.eager.")]
    return telling[0] if telling else "none found"


def backwards(case: dict) -> bool:
    """Whether the bad end is the older one, so that the race finds the release of the fix."""
    ends = case["last_good"] or "", case["steps"][0]["point"]
    return all(re.fullmatch(r"[\d.]+", end) for end in ends) and Version(ends[0]) > Version(ends[1])


def when(finding: Finding, found: dict) -> str:
    """Return since which release the finding is there, or up to which."""
    case = case_of(found["race"])
    if finding.since:
        return finding.since
    release = case["first_bad"] or "one of " + ", ".join(case["suspects"])
    return f"up to {release}" if backwards(case) else release


def fix(finding: Finding, found: dict) -> str:
    """Return in which release the finding is fixed, or that it is not."""
    if backwards(case := case_of(found["race"])):
        return f"in {case['last_good']}"
    if "fix" not in found:
        return ""
    case = case_of(found["fix"])
    if case is None or not case["steps"]:
        return "not known"
    if case["last_good"]:
        return f"in {case['last_good']}"
    return "not known" if case["steps"][0]["outcome"] == "inconclusive" else f"not up to {finding.fixed}"


COLOURS = {TIME: "#c2410c", MEMORY: "#2563eb", OPS: "#15803d"}
HEADINGS = ("finding", "reported", "ratio here", "since", "metric", "cause named here", "cause named there", "fixed")


def size(finding: Finding, found: dict) -> float:
    """Return the ratio of a finding, 0 if it is not reproduced."""
    return end_of(found["race"])["ratio"]["center"] if reproduced(found) and not finding.refuted else 0.0


def table(findings: Iterable[tuple[Finding, dict]]) -> str:
    """Return the findings as a Markdown table, the reproduced ones first and the largest of them at the top."""
    known = sorted(findings, key=lambda one: -size(*one))
    rows = [HEADINGS, ["---"] * len(HEADINGS), *(row(*one) for one in known)]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |" for cells in rows) + "\n"


def load() -> list[tuple[Finding, dict]]:
    """Return the measured findings with their recorded results."""
    known = Records(DATA).read()
    return [(one, known[one.name]) for one in FINDINGS if one.name in known]


def show() -> None:
    """Print the table, write it into the page and draw the figure."""
    known = load()
    text = table(known)
    print(text, end="")
    page = PAGE.read_text(encoding="utf-8")
    write_whole(PAGE, within(page, BEGIN, text, END))
    draw([one for one in known if size(*one)])


def draw(known: Sequence[tuple[Finding, dict]]) -> None:
    """Draw the ratio of every reproduced finding with its interval."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update(
        {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "tfbench"}
    )
    ordered = sorted(known, key=lambda one: end_of(one[1]["race"])["ratio"]["center"])
    figure, axes = plt.subplots(figsize=(7.5, 0.8 + 0.32 * len(ordered)), layout="constrained")
    for height, (finding, found) in enumerate(ordered):
        ratio = end_of(found["race"])["ratio"]
        colour = COLOURS[finding.metric]
        axes.plot([ratio["low"], ratio["high"]], [height] * 2, color=colour, lw=2)
        axes.plot([ratio["center"]], [height], "o", color=colour, ms=5)
    axes.set_yticks(range(len(ordered)), [finding.name for finding, _ in ordered])
    axes.axvline(1, color="#9aa5b1", lw=1)
    ticks = [1, 2, 5, 10, 20, 50, 100, 200, 500]
    axes.set(xscale="log", xlabel="ratio with its interval (red: time, blue: memory, green: ops of the graph)")
    axes.xaxis.set_major_locator(mpl.ticker.FixedLocator(ticks))
    axes.xaxis.set_major_formatter(mpl.ticker.FormatStrFormatter("%g"))
    axes.xaxis.set_minor_locator(mpl.ticker.NullLocator())
    figure.savefig(FIGURE, metadata={"Date": None})


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    names = [finding.name for finding in FINDINGS]
    parser.add_argument(
        "--only", action="append", choices=names, metavar="NAME", help=f"measure again: {', '.join(names)}"
    )
    parser.add_argument("--show", action="store_true", help="measure nothing; write the table and the figure")
    asked = parser.parse_args(arguments)
    if asked.show:
        show()
        return 0
    known = Records(DATA).read()
    for finding in FINDINGS:
        if finding.name in asked.only if asked.only else finding.name not in known:
            found = measure(finding)
            Records(DATA).write(finding.name, found)
            print(table([(finding, found)]), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
