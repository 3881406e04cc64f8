"""Read a report file from an untrusted source, and refuse a file that violates the schema."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable
from functools import cache
from importlib import resources
from typing import Any, NoReturn, TypeVar

from jsonschema import Draft202012Validator

from tfbench.errors import ReportError
from tfbench.model import JSON, Case, Outcome, Ratio, Reason, Report, Skip, VariantResult, Verdict
from tfbench.policy import RENAMED_FIELDS

LARGEST = 64 << 20
"""Maximum bytes. A report of ten thousand cases has five million."""
_DIGITS = 18
"""Maximum digits of a whole number. Seeds have ten."""
_NAME = re.compile(r"(?![/~@-])(?!.*(?:^|/)\.\.(?:/|::|$))[^<>`\\\x00-\x1f\x7f]+(?:::[^<>`\\\x00-\x1f\x7f]+|(?<=\.py))")
_CONTROL = dict.fromkeys((*range(9), *range(11, 32), *range(127, 160)), "�")
"""Control characters, which could move the cursor of a terminal."""

Value = TypeVar("Value")


def read(text: str, name: str) -> Report:
    """Read a report from its JSON text.

    Args:
        name: Name of the text in errors.

    Raises:
        ReportError: The text is not ``tfbench-report/1``. The message names the place.
    """
    return report_of(load(text, name), name)


def load(text: str, name: str) -> Any:
    """Parse JSON text, and refuse numbers that JSON does not have.

    Raises:
        ReportError: The text is too large or not JSON.
    """

    def refuse(word: str) -> NoReturn:
        raise ValueError(f"{word} is not a JSON number")

    def finite(word: str) -> float:
        if not math.isfinite(number := float(word)):
            raise ValueError(f"{_brief(word)} is too large for a number")
        return number

    def whole(word: str) -> int:
        if len(word) > _DIGITS:
            raise ValueError(f"a number of {len(word)} digits")
        return int(word)

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError(f"the key {_brief(_duplicate(key for key, _ in pairs))!r} is duplicated")
        return found

    if len(text) > LARGEST:
        raise ReportError(f"{name} is larger than {LARGEST >> 20} MiB, the limit for a report")
    try:
        return json.loads(text, parse_constant=refuse, parse_float=finite, parse_int=whole, object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise ReportError(f"{name} is not JSON: {error}") from None


def report_of(content: Any, name: str) -> Report:
    """Build a report from the parsed content of its file.

    Raises:
        ReportError: The content violates the schema.
    """
    error = min(_validator().iter_errors(content), key=lambda error: len(error.absolute_path), default=None)
    if error is not None:
        where = "/".join(map(str, error.absolute_path)) or "the top"
        raise ReportError(f"{name} is not a report of the schema tfbench-report/1: at {where}, {_brief(error.message)}")
    verdicts = tuple(map(verdict_of, content["verdicts"]))
    rows = [(verdict.case.name, verdict.metric) for verdict in verdicts]
    if len(set(rows)) != len(rows):
        case, metric = _duplicate(rows)
        raise ReportError(f"{name} has two verdicts on the {metric} of {case}")
    return Report(
        policy={RENAMED_FIELDS.get(key, key): value for key, value in content["policy"].items()},
        sides=content["sides"],
        verdicts=verdicts,
        variant_results=tuple(map(variant_result_of, content["standings"])),
        skips=tuple(Skip(_case(row["case"]), _plain(row["reason"])) for row in content["skipped"]),
        wall_seconds=content["wall_seconds"],
        seed=content.get("seed", 0),
        interrupted=content["interrupted"],
        due=tuple(map(_plain, content.get("due", ()))),
        complete=content.get("complete"),
        shard=content.get("shard"),
        profiles=tuple(
            {**row, "case": _plain(row["case"]), "why": list(map(_plain, row["why"]))}
            for row in content.get("profiles", [])
        ),
    )


def check_names(report: Report, name: str) -> None:
    """Refuse a report with a case name that pytest cannot give to a benchmark below its root.

    Raises:
        ReportError: The report has such a name.
    """
    cases = [row.case.name for rows in (report.verdicts, report.variant_results, report.skips) for row in rows]
    for case in (*report.due, *cases, *(profile["case"] for profile in report.profiles)):
        if not _NAME.fullmatch(case):
            raise ReportError(f"{name} has a case named {_brief(repr(case))}, which is not a valid name of a benchmark")


@cache
def _validator() -> Draft202012Validator:
    return Draft202012Validator(json.loads(resources.files("tfbench.report").joinpath("schema.json").read_bytes()))


def _duplicate(values: Iterable[Value]) -> Value:
    """Return a value that occurs more than once. The caller knows that there is one."""
    return Counter(values).most_common(1)[0][0]


def _brief(message: str) -> str:
    return message if len(message) <= 200 else f"{message[:97]} … {message[-97:]}"


def _plain(text: str) -> str:
    return text.translate(_CONTROL)


def _case(name: str, workload: str = "", variant: JSON | None = None) -> Case:
    group = _plain(name).partition("[")[0]
    levels = tuple(sorted((_plain(axis), _plain(level)) for axis, level in (variant or {}).items()))
    return Case(_plain(name), _plain(workload) or group.rpartition("::")[2], group, levels)


def verdict_of(row: JSON) -> Verdict:
    """Build a verdict from its row of a report."""
    values = row.get("values")
    return Verdict(
        case=_case(row["case"], row["workload"], row["variant"]),
        outcome=Outcome(row["outcome"]),
        reason=Reason(_plain(row["reason"]["code"]), _plain(row["reason"]["message"])),
        metric=_plain(row["metric"]),
        ratio=_ratio(row["ratio"]),
        launches=row["launches"],
        rounds=row["rounds"],
        wall_seconds=row["wall_seconds"],
        values=(values["baseline"], values["contender"]) if values else None,
        unit=_plain(values["unit"]) if values else "",
    )


def variant_result_of(row: JSON) -> VariantResult:
    """Build the result of a variant from its row of a report."""
    return VariantResult(
        case=_case(row["case"]),
        reference=_plain(row["reference"]),
        median_seconds=row["median_seconds"],
        ratio=_ratio(row["ratio"]),
        outcome=None if row["outcome"] is None else Outcome(row["outcome"]),
        launches=row["launches"],
        rounds=row["rounds"],
        facts=row["facts"],
    )


def _ratio(row: JSON | None) -> Ratio | None:
    """Read a ratio. ``null`` bounds are infinite."""
    if row is None:
        return None
    unbounded = {"center": math.nan, "low": 0.0, "high": math.inf}
    center, low, high = (default if row[key] is None else row[key] for key, default in unbounded.items())
    return Ratio(center, low, high, row["confidence"])
