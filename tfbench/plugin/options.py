"""The options of pytest, and the thresholds and sides that they choose."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tfbench.errors import DeclarationError, TfbenchError, UsageError
from tfbench.facts import library_variables
from tfbench.fs import require_linux
from tfbench.model import STATISTICS, THRESHOLDS, Case
from tfbench.plugin import HISTORY_PLACES, setting
from tfbench.plugin.collect import ListedFile, scope_of
from tfbench.policy import Policy
from tfbench.race.prober import HIGHEST, METHODS, ProfilerConfig
from tfbench.race.process_launcher import Processors, processors
from tfbench.race.workers import Suite
from tfbench.sides.source_tree import top_level
from tfbench.stats.alpha_spending import completed
from tfbench.storage.baselines import HISTORY, JOURNAL, Layout
from tfbench.storage.database import is_url
from tfbench.suite.axes import Variant
from tfbench.suite.claims import claims_of
from tfbench.suite.fingerprint import digest

# Read the thresholds of single cases: from the mark ``tfbench``, and from patterns in the ini file


STATISTIC = "statistic"
"""The argument of the mark that says what a verdict on time is about."""
_STATISTICS = ", ".join(map(repr, STATISTICS))
INI = "tfbench_thresholds"
"""The ini option: lines such as ``test_io*: minimum_effect=0.05, tolerance=0.1``."""
_LINE = re.compile(r"(?P<pattern>\S.*?)\s*:\s+(?P<values>\w+\s*=.*)")


@dataclass(frozen=True)
class Pattern:
    """A line of the ini option."""

    text: str
    values: Mapping[str, float]

    def matches(self, name: str) -> bool:
        """Tell whether the line is for a case: for its name, its function, or either without the file.

        ``*`` stands for any text and ``?`` for a character. Brackets stand for themselves, as names have them.
        """
        wanted = re.compile("".join({"*": ".*", "?": "."}.get(char, re.escape(char)) for char in self.text), re.DOTALL)
        whole = name, name.partition("[")[0]
        return any(wanted.fullmatch(one) for name in whole for one in (name, name.partition("::")[2]))


def parse_patterns(lines: Sequence[str]) -> list[Pattern]:
    """Parse the lines of the ini option.

    Raises:
        UsageError: A line is no pattern with values.
    """
    found = []
    for line in lines:
        if not (match := _LINE.fullmatch(line.strip())):
            raise UsageError(f"{INI}: {line!r}: write a pattern and its values: test_io*: minimum_effect=0.05")
        pairs = [part.partition("=") for part in match["values"].split(",")]
        values = {}
        for name, _, text in pairs:
            try:
                values[name.strip()] = _fraction(name.strip(), text)
            except ValueError as error:
                raise UsageError(f"{INI}: {match['pattern']!r}: {error}") from None
        found.append(Pattern(match["pattern"], values))
    return found


def check_used(patterns: Sequence[Pattern], names: Collection[str]) -> None:
    """Check that each pattern is for at least one of these cases.

    Raises:
        UsageError: A pattern names none.
    """
    for pattern in patterns:
        if not any(pattern.matches(name) for name in names):
            fix = "`pytest --benchmark --collect-only -q` lists the benchmarks"
            raise UsageError(f"{INI}: no benchmark matches {pattern.text!r}; {fix}")


def thresholds_of(item: pytest.Item, patterns: Sequence[Pattern], policy: Policy) -> tuple[tuple[str, float], ...]:
    """Return the own thresholds of an item's case, ``()`` without any.

    Raises:
        DeclarationError: A value is invalid, or two places set the same threshold to different values.
    """
    given: dict[str, tuple[float, str]] = {}
    for mark in reversed(list(item.iter_markers("tfbench"))):  # the closest mark counts
        for name in set(THRESHOLDS) & set(mark.kwargs):
            try:
                given[name] = _fraction(name, mark.kwargs[name]), "its mark"
            except ValueError as error:
                raise DeclarationError(f"{item.nodeid}: @pytest.mark.tfbench: {error}") from None
    for pattern in patterns:
        if not pattern.matches(item.nodeid):
            continue
        where = f"{pattern.text!r} in {INI}"
        for name, value in pattern.values.items():
            known, place = given.get(name, (value, where))
            if known != value:
                text = f"{name}={known:g} of {place} contradicts {name}={value:g} of {where}; remove one of them"
                raise DeclarationError(f"{item.nodeid}: {text}")
            given[name] = known, place
    if not given:
        return ()
    try:
        return tuple(completed({name: value for name, (value, _) in given.items()}, policy).items())
    except ValueError as error:
        raise DeclarationError(f"{item.nodeid}: thresholds: {error}") from None


def statistic_of(item: pytest.Item) -> str:
    """Return what an item's mark says that a verdict on its time is about, ``""`` for the policy's statistic.

    Raises:
        DeclarationError: There is no such statistic.
    """
    mark = next((mark for mark in item.iter_markers("tfbench") if STATISTIC in mark.kwargs), None)
    name = mark.kwargs[STATISTIC] if mark else ""
    if mark and name not in STATISTICS:
        raise DeclarationError(f"{item.nodeid}: @pytest.mark.tfbench: {STATISTIC}={name!r}: use one of {_STATISTICS}")
    return str(name)


def with_statistic(policy: Policy, name: str) -> Policy:
    """Return the policy with the statistic of the option ``--statistic``, its own without one.

    Raises:
        UsageError: There is no such statistic.
    """
    if name and name not in STATISTICS:
        raise UsageError(f"--statistic {name!r}: use one of {_STATISTICS}")
    return dataclasses.replace(policy, statistic=name) if name else policy


def _fraction(name: str, value: object) -> float:
    if name not in THRESHOLDS:
        raise ValueError(f"there is no threshold {name!r}; there are {' and '.join(THRESHOLDS)}")
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = -1.0
    if not 0 < number < 1:
        shown = value.strip() if isinstance(value, str) else value
        raise ValueError(f"{name}={shown}: write a fraction between 0 and 1, such as 0.05 for 5%")
    return number


# Parse option values, and turn pytest items into cases


def parse_cpus(text: str) -> tuple[int, ...]:
    """Parse a list of processors, such as ``0,2-3``.

    Raises:
        UsageError: The text is not a list, or this process may not use one of the processors.
    """
    chosen: set[int] = set()
    for part in text.split(","):
        if not (match := re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)):
            raise UsageError(f"--cpus {text!r}: write processors as in 0,2-3")
        first, last = int(match[1]), int(match[2] or match[1])
        chosen.update(range(first, last + 1))
    if unusable := sorted(chosen - set(available_cpus())):
        usable = ",".join(map(str, available_cpus()))
        raise UsageError(f"--cpus {text}: processor {unusable[0]} is not available; choose from {usable}")
    if not chosen:
        raise UsageError(f"--cpus {text!r} names no processor")
    return tuple(sorted(chosen))


def suite_of(
    config: pytest.Config, names: Iterable[str], started_with: Mapping[str, str], imports_tensorflow: bool
) -> Suite:
    """Return the benchmark files of the named cases, and how workers import them.

    Args:
        started_with: The environment before a conftest.py or a benchmark changed it.
        imports_tensorflow: Whether one of them does.
    """
    root, inifile = config.rootpath, config.inipath
    return Suite(
        files=tuple(dict.fromkeys(name.partition("::")[0] for name in names)),
        inifile=inifile.relative_to(root).as_posix() if inifile and inifile.is_relative_to(root) else "",
        import_mode=config.getoption("importmode"),
        made=str(Layout.of(root).shared_set_ups),
        cpus=available_cpus(),
        variables=worker_variables(started_with, os.environ),
        tree=str(top_level(root) or ""),
        imports_tensorflow=imports_tensorflow,
    )


def worker_variables(before: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the workers of all sides: this one, without what this tree's benchmarks have set.

    What libraries read is as it was ``before`` a conftest.py or a benchmark was imported. Each side imports its own,
    which set the variables again, or set others.
    """
    read_by_libraries = library_variables(now)
    free = {name: value for name, value in now.items() if name not in read_by_libraries}
    return free | library_variables(before)


def available_cpus() -> tuple[int, ...]:
    """Return the processors that this process may use, in ascending order."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def worker_processors(cpus: str | None, *, listing: bool = False) -> Processors:
    """Return the processors of the option --cpus, or the default ones without it. Every command that races asks first.

    Args:
        listing: Whether the cases are listed only, which works on every system.

    Raises:
        UsageError: A race is impossible on this system, or the option is invalid.
    """
    if not listing:
        require_linux()
    return processors(parse_cpus(cpus) if cpus else None, available_cpus())


def parse_slowdown(text: str) -> float:
    """Parse the fraction of ``--inject-slowdown``.

    Raises:
        UsageError: The text is not a number from 0 to 10.
    """
    try:
        fraction = float(text)
    except ValueError:
        fraction = -1.0
    if not 0 <= fraction <= 10:
        raise UsageError(f"--inject-slowdown {text!r}: write a fraction from 0 to 10, such as 0.10 for 10% more work")
    return fraction


def parse_suite_limit(text: str | None, *, raced: bool, partial: str) -> float:
    """Parse the slowdown of ``--gate-suite``, such as ``0.5%`` or ``0.005``; return 0 for ``None``.

    Args:
        raced: Whether the run has a baseline to race.
        partial: Option that lets it race a part of the suite only, ``""`` without one.

    Raises:
        UsageError: The text is no fraction between 0 and 1, or the run cannot have a mean to judge.
    """
    if text is None:
        return 0.0
    number, percent = (text[:-1], 0.01) if text.endswith("%") else (text, 1.0)
    try:
        limit = float(number) * percent
    except ValueError:
        limit = 0.0
    if not 0 < limit < 1:
        raise UsageError(f"--gate-suite {text!r}: write the slowdown of the mean to find, such as 0.5% or 0.005")
    if not raced:
        raise UsageError("--gate-suite judges the mean of cases that race a baseline: add --against SPEC or --baseline")
    if partial:
        raise UsageError(f"--gate-suite needs a race of all cases in one run; run without {partial}")
    return limit


def parse_profiler_config(levels: str, method: str) -> ProfilerConfig:
    """Parse tracer levels, such as ``host=2,python=1``, and the name of a profile method.

    Raises:
        UsageError: The method, a tracer or a level is unknown.
    """
    if method not in METHODS:
        raise UsageError(f"--profile-method {method!r}: choose from {', '.join(METHODS)}")
    found = {}
    for part in filter(None, levels.split(",")):
        if not (match := re.fullmatch(r"\s*(host|device|python)=(\d)\s*", part)) or int(match[2]) > HIGHEST[match[1]]:
            highest = ", ".join(f"{name}=0 to {level}" for name, level in HIGHEST.items())
            raise UsageError(f"--profile-levels {levels!r}: write tracers and levels: {highest}")
        found[match[1]] = int(match[2])
    return ProfilerConfig(method, found)


def case_of(
    item: pytest.Function,
    place: tuple[int, int] = (0, 0),
    thresholds: tuple[tuple[str, float], ...] = (),
    statistic: str = "",
) -> Case:
    """Turn a benchmark's item into its case.

    Args:
        place, thresholds, statistic: See `Case`.

    Raises:
        DeclarationError: The ``tfbench`` mark has unknown arguments, or a contract names no variant.
    """
    variant, others = Variant(), ""
    callspec = getattr(item, "callspec", None)
    if callspec is not None:
        others = callspec.id
        if isinstance(given := callspec.params.get("variant"), Variant):
            variant, others = given, callspec.id.replace(given.id, "", 1).strip("-")
    workload = item.originalname
    base = item.nodeid.partition("[")[0]
    return Case(
        name=item.nodeid,
        workload=workload,
        group=f"{base}[{others}]" if others else base,
        variant=tuple(variant),
        reference=variant.reference,
        env=tuple(sorted(variant.env.items())),
        cpus=_marked_cpus(item),
        source=digest(item.function),
        scope=scope_of(item),
        claims=claims_of(item, variant),
        shared="shared" in item.fixturenames,
        place=place,
        thresholds=thresholds,
        statistic=statistic,
        alone=isinstance(item.parent, ListedFile),
    )


def _marked_cpus(item: pytest.Function) -> str:
    mark = item.get_closest_marker("tfbench")
    if mark is None:
        return ""
    unknown = set(mark.kwargs) - {"cpus", STATISTIC, *THRESHOLDS}
    if mark.args or unknown or mark.kwargs.get("cpus") not in (None, "all"):
        raise DeclarationError(
            f"{item.nodeid}: @pytest.mark.tfbench takes only cpus='all', statistic, {' and '.join(THRESHOLDS)}"
        )
    return mark.kwargs.get("cpus") or ""


def wanted_by_device(case: Case, device: str) -> bool:
    """Tell whether ``--device`` selects this case; it always selects a case without the axis ``device``."""
    return device == "all" or case.levels.get("device", device) == device


def job_options(config: pytest.Config) -> dict[str, Any]:
    """Return the fields of `RunRequest` that the job of ``--job`` determines, ``{}`` without one.

    Raises:
        UsageError: The job cannot be read, or another option contradicts it.
    """
    if not (path := setting(config, "job")):
        return {}
    from tfbench.fleet.job import load

    if setting(config, "shard") or not setting(config, "against") or not setting(config, "report_json"):
        raise UsageError("--job needs --against and --report-json, and excludes --shard; tfbench job run gives them")
    try:
        job = load(Path(path))
    except TfbenchError as error:
        raise UsageError(f"--job: {error}") from None
    journal = Path(setting(config, "report_json")).with_name(JOURNAL)
    return {"job": job.part, "seed": job.seed, "session_name": job.session, "journal": journal}


def given_folder(config: pytest.Config, given: str, default: str) -> Path:
    """Return the folder of an option. The default is below pytest's root, and others where pytest was started."""
    return config.rootpath / default if given in ("", default) else config.invocation_params.dir / given


def given_history(config: pytest.Config, given: str | None) -> str | Path | None:
    """Return the place of ``--history``, ``None`` without it."""
    if not given:
        return None
    place = (HISTORY_PLACES[config.pluginmanager] or given) if given == HISTORY else given
    return place if is_url(place) else given_folder(config, place, HISTORY)


def check_not_taken_for_test(config: pytest.Config, option: str, path: str) -> None:
    """Refuse a path that pytest would take for a test, and its folder for the root.

    pytest parses its arguments before it knows the options of plugins.

    Raises:
        UsageError: The path exists outside the current folder.
    """
    given = config.invocation_params
    if (
        path
        and path in given.args
        and Path(path).exists()
        and not Path(path).resolve().is_relative_to(given.dir.resolve())
    ):
        raise UsageError(
            f"{option} {path}: pytest takes an existing path outside this folder for a test; "
            f"write {option}={path}, with an equals sign"
        )
