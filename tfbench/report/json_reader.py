"""Read a report file from an untrusted source, and refuse a file that violates the schema."""

from __future__ import annotations

import json
import math
import re
from functools import cache
from importlib import resources
from typing import Any

from tfbench.errors import ReportError
from tfbench.model import (
    JSON,
    Calls,
    Case,
    Outcome,
    Ratio,
    Reason,
    Report,
    Skip,
    StoredRounds,
    SuiteVerdict,
    VariantResult,
    Verdict,
)
from tfbench.model.rounds import LARGEST as LARGEST_ROUNDS
from tfbench.policy import RENAMED_FIELDS
from tfbench.report.schema import Validator, duplicate
from tfbench.untrusted import (
    a_list,
    a_text,
    an_integer,
    an_object,
    brief,
    described,
    is_case,
    parse_json,
    printable,
    times,
)

SCHEMA = "tfbench-report/1"
_SCHEMA = re.compile(r"tfbench-report/\d{1,4}")
LARGEST = 64 << 20
"""Maximum bytes. A report of ten thousand cases with their rounds has 25 million."""
_NAME = 2000
"""Maximum characters of the name of a case, as in the schema."""


def read(text: str, name: str) -> Report:
    """Read a report from its JSON text.

    Args:
        name: Name of the text in errors.

    Raises:
        ReportError: The text is not ``tfbench-report/1``. The message names the place.
    """
    return report_of(load(text, name), name)


def load(text: str, name: str, *, constants: bool = False) -> Any:
    """Parse JSON text strictly, see `parse_json`.

    Raises:
        ReportError: The text is too large or not JSON.
    """
    if len(text) > LARGEST:
        raise ReportError(f"{brief(name)} is larger than {LARGEST >> 20} MiB, the limit for a report")
    try:
        return parse_json(text, constants=constants)
    except ValueError as error:
        raise ReportError(f"{brief(name)} is not JSON: {brief(error)}") from None


def report_of(content: Any, name: str) -> Report:
    """Build a report from the parsed content of its file.

    Raises:
        ReportError: The content violates the schema.
    """
    if isinstance(content, dict) and "schema" not in content and "benchmarks" in content:
        kind = "a baseline" if "tfbench" in content else "a file of pytest-benchmark"
        raise ReportError(
            f"{brief(name)} is {kind}, not a report: write one with pytest --benchmark --report-json PATH"
        )
    schema = content.get("schema") if isinstance(content, dict) else None
    if isinstance(schema, str) and schema != SCHEMA and _SCHEMA.fullmatch(schema):
        raise ReportError(
            f"{brief(name)} has the schema {schema}, and this version of tfbench reads {SCHEMA}: update tfbench"
        )
    if why := _validator().violation(content):
        raise ReportError(f"{brief(name)} is not a report of the schema {SCHEMA}: {why}")
    verdicts = tuple(map(_verdict_of, content["verdicts"]))
    rows = [(verdict.case.name, verdict.metric) for verdict in verdicts]
    if len(set(rows)) != len(rows):
        case, metric = duplicate(rows)
        raise ReportError(f"{brief(name)} has two verdicts on the {brief(metric)} of {brief(case)}")
    return Report(
        policy={RENAMED_FIELDS.get(key, key): value for key, value in content["policy"].items()},
        sides=content["sides"],
        verdicts=verdicts,
        variant_results=tuple(map(_variant_result_of, content["standings"])),
        skips=tuple(Skip(_case(row["case"]), printable(row["reason"])) for row in content["skipped"]),
        wall_seconds=content["wall_seconds"],
        seconds_by_phase=_seconds(content.get("seconds_by_phase", {})),
        seconds_by_case=_seconds(content.get("seconds_by_case", {})),
        seed=content.get("seed", 0),
        interrupted=content["interrupted"],
        due=tuple(map(_plain, content.get("due", ()))),
        complete=content.get("complete"),
        shard=content.get("shard"),
        suite=_suite_of(content["suite"]) if content.get("suite") else None,
        profiles=tuple(
            {**row, "case": _plain(row["case"]), "why": list(map(_plain, row["why"]))}
            for row in content.get("profiles", [])
        ),
        rounds=tuple(_rounds_of(row, name) for row in content.get("rounds", [])),
        machines=tuple(map(_machine_of, content.get("machines", []))),
    )


def rows_of(verdicts: Any, standings: Any, profiles: Any) -> Report:
    """Read rows that stand for themselves, with the same strictness as a report's.

    Raises:
        ReportError: A row violates the schema.
    """
    empty = {
        "schema": SCHEMA,
        "policy": {"name": ""},
        "sides": {},
        "skipped": [],
        "wall_seconds": 0,
        "interrupted": False,
    }
    return report_of({**empty, "verdicts": verdicts, "standings": standings, "profiles": profiles}, "the entry")


def check_names(report: Report, name: str) -> None:
    """Refuse a report with a case name that pytest cannot give to a benchmark below its root.

    Raises:
        ReportError: The report has such a name.
    """
    cases = [row.case.name for rows in (report.verdicts, report.variant_results, report.skips) for row in rows]
    for case in (*report.due, *report.seconds_by_case, *cases, *(profile["case"] for profile in report.profiles)):
        if not is_case(case):
            raise ReportError(f"{brief(name)} has a case named {brief(repr(case))}, which is no name of a benchmark")


@cache
def _validator() -> Validator:
    schema = json.loads(resources.files("tfbench.report").joinpath("schema.json").read_bytes())
    # A large report has twenty thousand rows of rounds. The library would take three seconds for them.
    schema["properties"]["rounds"].pop("items")
    return Validator(schema)


def _plain(text: str) -> str:
    """Return a name with its invisible characters replaced, so that it stays one line in lists."""
    return printable(text).translate(_BREAKS)


_BREAKS = {9: "\N{REPLACEMENT CHARACTER}", 10: "\N{REPLACEMENT CHARACTER}"}


def _seconds(row: JSON) -> dict[str, float]:
    return {_plain(name): seconds for name, seconds in row.items()}


def _case(name: str, workload: str = "", variant: JSON | None = None, thresholds: JSON | None = None) -> Case:
    group = _plain(name).partition("[")[0]
    levels = tuple(sorted((_plain(axis), _plain(level)) for axis, level in (variant or {}).items()))
    own = tuple((thresholds or {}).items())
    return Case(_plain(name), _plain(workload) or group.rpartition("::")[2], group, levels, thresholds=own)


def _verdict_of(row: JSON) -> Verdict:
    """Build a verdict from its row of a report."""
    values, calls = row.get("values"), row.get("calls")
    return Verdict(
        case=_case(row["case"], row["workload"], row["variant"], row.get("thresholds")),
        outcome=Outcome(row["outcome"]),
        reason=Reason(_plain(row["reason"]["code"]), printable(row["reason"]["message"])),
        metric=_plain(row["metric"]),
        ratio=_ratio(row["ratio"]),
        launches=row["launches"],
        rounds=row["rounds"],
        wall_seconds=row["wall_seconds"],
        values=(values["baseline"], values["contender"]) if values else None,
        unit=_plain(values["unit"]) if values else "",
        calls=(Calls(**calls["baseline"]), Calls(**calls["contender"])) if calls else None,
        tail=_ratio(calls["geometric_mean"]) if calls else None,
        rates={unit: (one["baseline"], one["contender"]) for unit, one in row.get("throughput", {}).items()},
    )


def _suite_of(row: JSON) -> SuiteVerdict:
    """Build the verdict on the mean of all cases from its object in a report."""
    reason = Reason(_plain(row["reason"]["code"]), printable(row["reason"]["message"]))
    return SuiteVerdict(row["limit"], Outcome(row["outcome"]), reason, row["cases"], _ratio(row["ratio"]))


def _variant_result_of(row: JSON) -> VariantResult:
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


def _machine_of(row: JSON) -> JSON:
    """Return the entry of a machine with its invisible characters replaced."""
    facts = {_plain(key): _plain(value) for key, value in row["facts"].items()}
    return {**row, "host": _plain(row["host"]), "class": _plain(row["class"]), "facts": facts}


def _rounds_of(row: Any, name: str) -> StoredRounds:
    """Build the rounds of a case from their row, which is checked here and not by the schema: see `_validator`."""
    try:
        side = a_text(an_object(row, "a row")["side"], "side")
        if side not in ("baseline", "contender"):
            raise ValueError(f"side {brief(repr(side))} is neither baseline nor contender")
        rounds = StoredRounds(
            case=_plain(a_text(row["case"], "case"))[:_NAME],
            side=side,
            median_seconds=times([row["median_seconds"]], "median_seconds")[0],
            launches=tuple(
                an_integer(one, "launches", 0, LARGEST_ROUNDS) for one in a_list(row["launches"], "launches")
            ),
            every=an_integer(row["every"], "every", 1, 1_000_000),
            steps=a_text(row["steps"], "steps"),
        )
        rounds.check()
    except (ValueError, KeyError) as error:
        raise ReportError(f"{brief(name)} has damaged rounds ({described(error)})") from None
    return rounds


def _ratio(row: JSON | None) -> Ratio | None:
    """Read a ratio. ``null`` bounds are infinite."""
    if row is None:
        return None
    unbounded = {"center": math.nan, "low": 0.0, "high": math.inf}
    center, low, high = (default if row[key] is None else row[key] for key, default in unbounded.items())
    return Ratio(center, low, high, row["confidence"])
