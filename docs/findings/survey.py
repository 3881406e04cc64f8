"""Race the whole suite over releases, and list what became slower by 10% from one release to the next.

    python docs/findings/survey.py                       # every file that docs/findings/survey lacks; hours
    python docs/findings/survey.py --only tensorflow/test_fusion
    python docs/findings/survey.py --again               # the bisections that failed in the recorded ones
    python docs/findings/survey.py --show                # the table, and the page's copy of it, as recorded

A survey races its releases in the same rounds, `tfbench versions`, one file of benchmarks after the other. Its results
are a file of docs/findings/survey, written whole after each file of benchmarks, so an interrupted survey goes on where it
stopped. A slower release is bisected once, with its cause: `tfbench bisect --causes`.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent))

from commands import PAGE, ROOT, Records, run, within

from tfbench.fs import write_whole

DATA = Path(__file__).parent / "survey"
BEGIN, END = "<!-- survey: begin -->", "<!-- survey: end -->"
POLICY = "quick"
SLOWER = 1.1
"""Ratio to the release before from which on a case is listed."""
COUNTS = "0.05"
"""Smallest slowdown that counts in a race: 10%, twice as much, must not pass as unchanged."""
SECONDS = 7200
"""Time limit of a command: six environments to build, and a file of benchmarks."""
LISTED = 3
"""Rows of the table: the largest ratios."""
_TENSORFLOW = ("2.16.2", "2.17.1", "2.18.1", "2.19.1", "2.20.0", "2.21.0")
_NIGHTLY = "2.23.0.dev20261026"
_KERAS = ("3.8.0", "3.9.2", "3.10.0", "3.11.3", "3.12.0", "3.13.2", "3.14.1", "3.15.0")
_OPTIMIZATION = "test_optimization"
"""Benchmarks of packages beside TensorFlow, which the other environments lack."""
_FILES = sorted(path.stem for path in (ROOT / "benchmarks").glob("test_*.py") if path.stem != _OPTIMIZATION)
_USES_KERAS = [name for name in _FILES if "keras" in (ROOT / "benchmarks" / f"{name}.py").read_text(encoding="utf-8")]


class Survey(NamedTuple):
    """What is raced over what."""

    over: str
    """The releases, in words."""
    releases: Sequence[str]
    """In order."""
    files: Sequence[str]
    """Names of files of benchmarks."""


SURVEYS = {
    "tensorflow": Survey("TensorFlow 2.16 to 2.21", _TENSORFLOW, _FILES),
    "nightly": Survey("TensorFlow 2.21 and a nightly of 2.23", (_TENSORFLOW[-1], f"tf-nightly=={_NIGHTLY}"), _FILES),
    "keras": Survey(
        "Keras 3.8 to 3.15 with TensorFlow 2.19, which admits all of them",
        [f"tensorflow==2.19.1+keras=={release}" for release in _KERAS],
        _USES_KERAS,
    ),
    "optimization": Survey(
        "TensorFlow 2.16 to 2.21 with tensorflow-model-optimization 0.8.0 and the tf-keras of each",
        [f"tensorflow=={release}+tf-keras+tensorflow-model-optimization==0.8.0" for release in _TENSORFLOW],
        [_OPTIMIZATION],
    ),
}


class Slower(NamedTuple):
    """A case that became slower from one release to the next."""

    case: str
    before: str
    release: str
    ratio: float
    low: float
    """The lower end of the interval of the slow release, divided by the upper end of the one before."""


def recorded(survey: str) -> Records:
    """Return the results of a survey, by file of benchmarks."""
    return Records(DATA / f"{survey}.jsonl")


def measure(releases: Sequence[str], name: str) -> dict:
    """Race a file of benchmarks, then bisect what became slower; return what its file holds."""
    options = ("--policy", POLICY, "--min-slowdown", COUNTS, "--device", "cpu")
    found = run("versions", *releases, f"benchmarks/{name}.py", *options, seconds=SECONDS)
    if "report" in found:
        bisected = bisect(list(slower(found["report"])))
        found["slower"] = [{**one._asdict(), "bisect": done} for one, done in bisected.items()]
    return found


def again(found: dict) -> dict:
    """Return what a file holds, after its failed bisections have been tried again."""
    cases = {Slower(*(one[name] for name in Slower._fields)): one for one in found.get("slower", ())}
    bisected = bisect([case for case, one in cases.items() if "failed" in one["bisect"]])
    done = [{**one, "bisect": bisected.get(case, one["bisect"])} for case, one in cases.items()]
    return {**found, "slower": done} if done else found


def slower(report: dict) -> Iterator[Slower]:
    """Yield the cases that became slower by `SLOWER`, and certainly slower, from one release to the next."""
    labels = list(report["sides"])
    for row in report["cases"]:
        ratios = {side: _ratio(row["sides"][side]) for side in labels}
        ratios[report["reference"]] = {"center": 1.0, "low": 1.0, "high": 1.0}
        for before, now in itertools.pairwise(labels):
            first, second = ratios[before], ratios[now]
            if not (first and second) or None in (first["high"], second["low"]):
                continue  # a release that cannot run the case, or an interval without an end
            ratio, low = second["center"] / first["center"], second["low"] / first["high"]
            if ratio >= SLOWER and low > 1:
                yield Slower(row["case"], before, now, ratio, low)


def bisect(cases: Sequence[Slower]) -> dict[Slower, dict]:
    """Bisect cases with their causes, all that became slower between the same two releases by one command."""
    found = {}
    for good, bad in dict.fromkeys((one.before, one.release) for one in cases):
        between = [one for one in cases if (one.before, one.release) == (good, bad)]
        names = [one.case for one in between]
        made = run("bisect", "--good", good, "--bad", bad, *names, "--policy", POLICY, "--causes", seconds=SECONDS)
        for one in between:
            content = made.get("report", {})
            own = [case for case in content.get("cases", ()) if case["case"] == one.case]
            found[one] = {**made, "report": {**content, "cases": own}} if content else made
    return found


def table() -> str:
    """Return what became slower as a Markdown table, the largest first.

    A list of how many cases were raced comes first.
    """
    rows, refuted, cases = [], [], dict.fromkeys(SURVEYS, 0)
    for survey in SURVEYS:
        for _, content in sorted(recorded(survey).read().items()):
            raced = [
                row for row in content.get("report", {}).get("cases", ()) if any(map(_ratio, row["sides"].values()))
            ]
            cases[survey] += len(raced)
            for one in content.get("slower", ()):
                if _refuted(one):
                    refuted.append(f"`{one['case'].partition('::')[2]}` ({_release(one['release'])})")
                else:
                    rows.append(_row(one))
    counts = [f"- {count} cases over {SURVEYS[survey].over}" for survey, count in cases.items()]
    lines = [*counts, "", "| case | since | ratio | cause |", "| --- | --- | --- | --- |"]
    rows.sort(reverse=True)
    for _, cells in rows[:LISTED]:
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    if further := len(rows[LISTED:]):
        lines += ["", f"The recorded files have {further} further cases, down to {rows[-1][0]:.2f}."]
    if refuted:
        lines += ["", f"Slower in the survey, but not when it was raced again to bisect it: {', '.join(refuted)}."]
    return "\n".join(lines) + "\n"


def _bisected(one: dict) -> dict:
    """Return what the bisection of a slower case found."""
    return one["bisect"].get("report", {}).get("cases", [{}])[0]


def _refuted(one: dict) -> bool:
    """Whether the races of the bisection found that the case is not slower."""
    found = _bisected(one)
    return bool(found.get("answered")) and not found.get("first_bad")


def _release(specification: str) -> str:
    """Return a release as a table names it."""
    first, *others = specification.split("+")
    keras = (one.removeprefix("keras==") for one in others if one.startswith("keras=="))
    return next((f"Keras {one}" for one in keras), first.removeprefix("tensorflow=="))


def _ratio(side: dict) -> dict | None:
    """Return the ratio of a case on a side, ``None`` if it has none."""
    return side.get("ratio")


def _row(one: dict) -> tuple[float, tuple[str, ...]]:
    """Return the ratio to the release before, and the cells of a slower case: as bisected, if that found the release."""
    found = _bisected(one)
    steps = {step["point"]: step for step in found.get("steps", ())}
    first = found.get("first_bad") or ""
    if ratio := steps.get(first, {}).get("ratio"):
        since, shown = (
            f"Keras {first}" if _release(one["release"]).startswith("Keras ") else first,
            f"{ratio['center']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f})",
        )
    else:
        since, shown = (
            _release(one["release"]),
            f"{one['ratio']:.2f}, not bisected: {found.get('answer', 'the command failed')}",
        )
    case = one["case"].partition("::")[2]
    return one["ratio"], (f"`{case}`", since, shown, next(iter(found.get("causes", ())), ""))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    names = [f"{survey}/{name}" for survey, what in SURVEYS.items() for name in what.files]
    parser.add_argument("--only", action="append", choices=names, metavar="SURVEY/FILE", help="measure again")
    parser.add_argument("--again", action="store_true", help="try again what failed in the recorded files, and no more")
    parser.add_argument("--show", action="store_true", help="measure nothing; write the table")
    asked = parser.parse_args(arguments)
    if not asked.show:
        for name in asked.only or names:
            survey, _, benchmarks = name.partition("/")
            known = recorded(survey).read().get(benchmarks)
            if asked.again and known:
                found = again(known)
            elif not asked.again and (asked.only or not known):
                found = measure(SURVEYS[survey].releases, benchmarks)
            else:
                continue
            recorded(survey).write(benchmarks, found)
    text = table()
    print(text, end="")
    write_whole(PAGE, within(PAGE.read_text(encoding="utf-8"), BEGIN, text, END))
    return 0


if __name__ == "__main__":
    sys.exit(main())
