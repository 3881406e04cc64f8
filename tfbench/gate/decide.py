"""Rule on a report in CI: accepted regressions, completeness, the code that was compared.

Some files are known by their names. Others are named by a file of the gate: the ``accepted:`` file and the scripts of a
workflow, and plugins of pytest. Those are read in the trusted tree, because a change of the naming file is flagged itself.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import math
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from tfbench.errors import ReportError, UsageError
from tfbench.fs import DATA_FOLDER, read_text
from tfbench.gate.artifact import files_of
from tfbench.model import TIME, Outcome, Report, Verdict
from tfbench.policy import Policy
from tfbench.report import comment, json_format
from tfbench.report.comment import code_of_side
from tfbench.ruling import Ruling, rule
from tfbench.untrusted import brief

# Compare the code of two reports, side by side


Named = tuple[str, Report]
"""The name of a report in error messages, and the report."""


def unlike_code(first: Named, second: Named) -> str:
    """Return how the code of two reports differs, ``""`` if both raced the same."""
    for name, report in (first, second):
        if not report.sides or not all(side.get("tree") for side in report.sides.values()):
            return f"{name} does not tell which code it raced; measure again with this version of tfbench"
    for side in sorted({*first[1].sides, *second[1].sides}):
        one, other = (report.sides.get(side, {}) for _, report in (first, second))
        if (one.get("commit"), one.get("tree")) != (other.get("commit"), other.get("tree")):
            texts = f"{code_of_side(one)} in {first[0]} and {code_of_side(other)} in {second[0]}"
            return f"the {side} is {texts}; race the same code, such as git: with a commit instead of a branch"
    return ""


# Tell which files of a pull request are part of the gate, so that a reader does not trust a gate that it has changed


_FOLDERS = (".github", "tfbench", "pytest", "_pytest")
"""Of the root. A package there comes before the installed one."""
_NAMES = frozenset(
    {"action.yml", "action.yaml", "conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "pyproject.toml",
     "tox.ini", "setup.cfg", "setup.py", "Makefile", "makefile", "GNUmakefile", "noxfile.py", "sitecustomize.py",
     "usercustomize.py", "pytest.py", "tfbench.py", "entry_points.txt", ".gitmodules", ".gitattributes", "Pipfile", "uv.toml",
     "pixi.toml", "pip.conf", ".python-version", ".tool-versions"}
)  # fmt: skip
_ENVIRONMENT = re.compile(
    r".*\.(lock|pth)|.*\baccepted\.toml|pylock(\..+)?\.toml|.*(requirements|constraints).*\.(txt|in)|Pipfile\.lock"
    r"|(environment|conda-lock).*\.ya?ml"
)
_SETTINGS = (
    "pytest.ini",
    ".pytest.ini",
    "pytest.toml",
    ".pytest.toml",
    "pyproject.toml",
    "tox.ini",
    "setup.cfg",
    "setup.py",
)
_PATH = re.compile(r"[\w.@+-]+(?:/[\w.@+-]+)*")
_MODULES = (
    (re.compile(r"""(?<![\w-])-p[\s"',=]*([\w.]+)"""), re.compile(r"[\w.]+")),
    (re.compile(r"""\bPYTEST_PLUGINS["']?\s*[:=]\s*["']?([\w.,]+)"""), re.compile(r"[\w.]+")),
    (re.compile(r"\bpytest_plugins\b[^=\n]*=\s*(\[[^]]*\]|\([^)]*\)|[^\n]*)"), re.compile(r"""["']([\w.]+)["']""")),
    (re.compile(r"\bpytest11\b(.*?)(?:\n\s*\[|\n\n|\Z)", re.DOTALL), re.compile(r"""=\s*["']?([\w.]+)""")),
)
"""What names plugins of pytest: options, an environment variable, modules and entry points; and each name in it."""
_PROSE = (".md", ".rst")
"""Endings of files that workflows name to leave them out."""


def own_files(changed: Iterable[str], root: Path) -> list[str]:
    """Select the workflows, settings, environments, baselines, accepted regressions, and files that those name; sorted.

    Args:
        changed: Paths relative to the root of the repository.
        root: A tree of the repository that the pull request has not changed.
    """
    paths, modules = _named(root)
    return sorted({name for name in changed if name and _is_own(PurePosixPath(name), paths, modules)})


def _is_own(path: PurePosixPath, paths: set[str], modules: set[str]) -> bool:
    if path.parts[0] in _FOLDERS or DATA_FOLDER in path.parts:
        return True
    if path.suffix in (".txt", ".in") and not {"requirements", "constraints"}.isdisjoint(path.parts):
        return True
    if path.name in _NAMES or _ENVIRONMENT.fullmatch(path.name) or str(path) in paths:
        return True
    parts = path.with_suffix("").parts if path.suffix == ".py" else ()
    parts = parts[:-1] if parts[-1:] == ("__init__",) else parts
    return any(".".join(parts[first:]) in modules for first in range(len(parts)))


def _named(root: Path) -> tuple[set[str], set[str]]:
    """Return the paths and the modules of plugins that files of the gate name."""
    paths, modules = set(), set()
    for file in _gate(root):
        try:
            text = read_text(file)
        except (ReportError, OSError, ValueError):
            continue
        modules |= {
            name for pattern, each in _MODULES for found in pattern.findall(text) for name in each.findall(found)
        }
        if not file.name.endswith(".py") and file.name not in _SETTINGS:
            paths |= {name for name in _PATH.findall(text.replace("./", " ")) if not name.endswith(_PROSE)}
    return paths, modules


def _gate(root: Path) -> Iterator[Path]:
    yield from (root / name for name in (*_SETTINGS, "action.yml", "action.yaml"))
    yield from (root / ".github").glob("**/*.y*ml")
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in ("node_modules", "venv")]
        if "conftest.py" in names:
            yield Path(folder, "conftest.py")


# Accepted regressions: entries of a reviewed file, each with a reason and an expiry date


_KEYS: dict[str, Any] = {
    "case": str,
    "metric": str,
    "up_to": (int, float),
    "gone": bool,
    "reason": str,
    "until": datetime.date,
}


@dataclass(frozen=True)
class Entry:
    """One accepted regression."""

    case: str
    reason: str
    until: datetime.date
    """The last day on which it is valid."""
    metric: str = TIME
    up_to: float = math.inf
    """The largest accepted ratio of times, or the largest accepted value of another metric."""
    gone: bool = False
    """Whether the entry accepts that the case is missing, and nothing else."""

    def covers(self, verdict: Verdict) -> bool:
        """Return whether this entry accepts the verdict, without regard to its expiry date."""
        if verdict.case.name != self.case:
            return False
        if self.gone:
            return verdict.outcome is Outcome.MISSING
        if verdict.outcome is not Outcome.REGRESSED or verdict.metric != self.metric:
            return False
        ratio = verdict.ratio.center if verdict.ratio else None
        value = verdict.values[1] if verdict.values else ratio
        return self.up_to == math.inf or (value is not None and value <= self.up_to)


@dataclass(frozen=True)
class Accepted:
    """The entries of a file, applied to one report."""

    verdicts: tuple[tuple[Verdict, Entry], ...] = ()
    """Accepted verdicts, which do not fail the gate, with their entries."""
    problems: tuple[str, ...] = ()
    """Expired and unused entries, one sentence each. They fail the gate until they are removed."""


def entries(content: Mapping[str, Any], name: str) -> list[Entry]:
    """Parse and check the content of a file.

    Raises:
        UsageError: An entry is invalid; the message has its number.
    """
    rows = content.get("accept", [])
    if set(content) - {"accept"} or not isinstance(rows, list):
        raise UsageError(f"{brief(name)}: only [[accept]] tables are allowed")
    found = [_entry(row, f"{brief(name)}, entry {number}") for number, row in enumerate(rows, 1)]
    keys = Counter((one.case, one.metric, one.gone) for one in found)
    if twice := next((key[0] for key, times in keys.items() if times > 1), ""):
        raise UsageError(f"{brief(name)} has {brief(twice)} twice; keep one of the two")
    return found


def _entry(row: Any, where: str) -> Entry:
    if not isinstance(row, dict):
        raise UsageError(f"{where} is not a table")
    for key, value in row.items():
        if key not in _KEYS:
            raise UsageError(f"{where} has the unknown key {brief(repr(key))}; valid keys: {', '.join(_KEYS)}")
        wrong = (isinstance(value, bool) and _KEYS[key] is not bool) or isinstance(value, datetime.datetime)
        if key == "up_to" and not wrong and isinstance(value, (int, float)):
            wrong = not 0 <= value < math.inf  # an infinite one would accept everything
        if wrong or not isinstance(value, _KEYS[key]):
            raise UsageError(f"{where}: {key} = {brief(repr(value), 80)} is invalid{_FIXES.get(key, '')}")
    for key in ("case", "reason", "until"):
        if not row.get(key):
            raise UsageError(f"{where} lacks {key!r}{_FIXES[key]}")
    if row.get("gone") and {"metric", "up_to"} & set(row):
        raise UsageError(f"{where}: gone excludes metric and up_to")
    if not row.get("gone") and row.get("metric", TIME) == TIME and "up_to" not in row:
        raise UsageError(f"{where} lacks 'up_to', the largest accepted ratio; write for example up_to = 1.08")
    return Entry(**row)


_FIXES = {
    "until": "; write the last valid day, for example until = 2027-01-31",
    "reason": "; state why the regression is accepted",
    "case": "; write the full name from the report",
}


def accept(report: Report, accepted: Sequence[Entry], today: datetime.date) -> Accepted:
    """Find the verdicts of a report that are accepted, and the entries that are expired or unused."""
    taken, problems = [], []
    for entry in accepted:
        covered = [verdict for verdict in report.verdicts if entry.covers(verdict)]
        what = f"{entry.case}{'' if entry.metric == TIME else f' ({entry.metric})'}: the acceptance"
        if entry.until < today:
            problems.append(f"{what} expired on {entry.until} ({entry.reason}); fix the regression, or renew the entry")
        elif not covered:
            problems.append(f"{what} is unused, {_now(entry, report)}; remove the entry")
        else:
            taken += [(verdict, entry) for verdict in covered]
    return Accepted(tuple(taken), tuple(problems))


def _now(entry: Entry, report: Report) -> str:
    """Describe the present state of the case, for the message about an unused entry."""
    rows = [verdict for verdict in report.verdicts if verdict.case.name == entry.case]
    same = next((verdict for verdict in rows if verdict.metric == entry.metric), None)
    if same is None:
        return "because the report has no such case or metric"
    if same.outcome is Outcome.REGRESSED and not entry.gone:
        return f"because the case is worse than the accepted {entry.up_to:g}: {same.reason.message}"
    return f"because the case is {same.outcome}"


# Apply the gate to a report file and a file of accepted regressions


if sys.version_info >= (3, 11):
    import tomllib
else:  # Python 3.10 has no tomllib
    import tomli as tomllib

ACCEPTED = "accepted.json"
"""File of accepted regressions that the gate adds to an artifact."""


@dataclass(frozen=True)
class GateDecision:
    """The ruling on a report, and the accepted regressions that it took into account."""

    ruling: Ruling
    accepted: Accepted


def load_report(path: Path) -> Report:
    """Read the report of this run: a file, or a folder or an archive with only this file.

    Raises:
        ReportError: There is no report, there are several, or it is invalid.
    """
    if not path.is_dir() and path.suffix != ".zip":
        return json_format.read(read_text(path), str(path))
    try:
        return _single(path, files_of(path))
    except ReportError as error:
        raise ReportError(
            f"{error}; give a report of --report-json, or a folder or archive with only a report"
        ) from None


def load_artifact(path: Path) -> tuple[Report, list[Entry]]:
    """Read the report of an untrusted job, and the accepted regressions that its gate applied.

    Raises:
        ReportError: The artifact is invalid, or has names that are not pytest node ids.
    """
    found = files_of(path)
    text = found.pop(ACCEPTED, None)
    report = _single(path, found)
    json_format.check_names(report, str(path))
    return report, _of_json(text) if text is not None else []


def _single(path: Path, found: dict[str, str]) -> Report:
    if len(found) != 1:
        raise ReportError(
            f"{brief(path)} has {len(found)} reports, expected one; merge the reports of shards with tfbench merge"
        )
    ((name, text),) = found.items()
    return json_format.read(text, name)


def load_accepted(path: Path) -> list[Entry]:
    """Read a file of accepted regressions from this repository.

    Raises:
        UsageError: The content is invalid.
        ReportError: The file cannot be read.
    """
    try:
        content = tomllib.loads(read_text(path))
    except (ValueError, RecursionError) as error:  # the parser has errors beside its own, such as of a date
        raise UsageError(f"{brief(path)} is not TOML: {brief(error)}") from None
    return entries(content, str(path))


def as_json(accepted: Sequence[Entry]) -> str:
    """Format accepted regressions as JSON, for an artifact. Like their file, it has no key with the default value."""
    defaults = {field.name: field.default for field in dataclasses.fields(Entry)}
    rows = [
        {key: value for key, value in vars(one).items() if value != defaults[key]} | {"until": str(one.until)}
        for one in accepted
    ]
    return json.dumps({"accept": rows}, indent=1) + "\n"


def _of_json(text: str) -> list[Entry]:
    content = json_format.load(text, ACCEPTED)
    try:
        rows = [{**row, "until": datetime.date.fromisoformat(row["until"])} for row in content["accept"]]
        return entries({"accept": rows}, ACCEPTED)
    except (TypeError, KeyError, ValueError, UsageError) as error:
        raise ReportError(f"{ACCEPTED} is invalid: {brief(error)}") from None


def decided(
    report: Report,
    accepted: Sequence[Entry] = (),
    today: datetime.date | None = None,
    min_compared: float = Policy().min_compared,
) -> GateDecision:
    """Decide on a report; ``today`` defaults to the date in UTC. See `rule` for ``min_compared``."""
    day = today or datetime.datetime.now(datetime.timezone.utc).date()
    found = accept(report, accepted, day)
    ruling = rule(report, [verdict for verdict, _ in found.verdicts], found.problems, min_compared)
    return GateDecision(ruling, found)


def as_comment(report: Report, decision: GateDecision, link: str = "", run: comment.GithubRun | None = None) -> str:
    """Format a decision as Markdown; ``link`` points to the run, and ``run`` is what GitHub says of it."""
    accepted = [(verdict, entry.reason, str(entry.until)) for verdict, entry in decision.accepted.verdicts]
    return comment.render(report, decision.ruling, accepted, decision.accepted.problems, link, run)
