"""Read the thresholds of single cases: from the mark ``tfbench``, and from patterns in the ini file."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pytest

from tfbench.errors import DeclarationError, UsageError
from tfbench.model import STATISTICS, THRESHOLDS
from tfbench.policy import Policy
from tfbench.stats.thresholds import completed

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
