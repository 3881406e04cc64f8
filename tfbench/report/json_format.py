"""The report as a file: schema, reading and writing."""

from __future__ import annotations

import importlib
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache, cached_property
from importlib import resources
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

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
from tfbench.model.measurement import LARGEST as LARGEST_ROUNDS
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
    render_json,
    times,
)

if TYPE_CHECKING:
    from jsonschema import ValidationError


# Validate JSON content by a schema, and name the outermost violation


Value = TypeVar("Value")
_RECURSIVE = ("anything", "reason")
"""The definition of a schema that refers to itself."""
_ERRORS = 100
"""Violations among which the message names the outermost."""


class Validator:
    """A schema of JSON Schema 2020-12.

    The extra ``fleet`` has a second, faster library. It only decides that content is valid: a small report takes it 0.02 ms
    instead of 3 ms, and a fleet has a hundred thousand. Messages always come from the first library.
    """

    def __init__(self, schema: JSON) -> None:
        self._schema = schema

    def violation(self, content: Any) -> str:
        """Return where and how the content violates the schema, ``""`` if it does not."""
        if self._is_valid is not None and self._is_valid(content):
            return ""
        errors = islice(self._validator.iter_errors(content), _ERRORS)
        error = min(errors, key=lambda error: len(error.absolute_path), default=None)
        if error is None:
            return ""
        return f"at {brief('/'.join(map(str, error.absolute_path)) or 'the top')}, {brief(error.message)}"

    @cached_property
    def _is_valid(self) -> Callable[[Any], bool] | None:
        with suppress(ImportError):
            fast: Callable[[Any], bool] = (
                importlib.import_module("jsonschema_rs").Draft202012Validator(self._schema).is_valid
            )
            return fast
        return None

    @cached_property
    def _validator(self) -> Any:
        # Importing it would cost every start of tfbench a tenth of a second, and most runs read no report.
        from jsonschema import Draft202012Validator, validators

        # The library's own check of uniqueItems takes quadratic time for items of mixed types.
        validator = validators.extend(Draft202012Validator, {"uniqueItems": _unique})
        return validator(_inlined(self._schema, self._schema.get("$defs", {})))


def _inlined(schema: Any, definitions: JSON) -> Any:
    """Replace references by their definitions: looking them up takes half of the time. A recursive one stays."""
    if isinstance(schema, list):
        return [_inlined(one, definitions) for one in schema]
    if not isinstance(schema, dict):
        return schema
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    if name and name not in _RECURSIVE:
        return _inlined(definitions[name], definitions)
    return {key: one if key == "$defs" else _inlined(one, definitions) for key, one in schema.items()}


def _unique(_: Any, unique: bool, instance: Any, schema: Any) -> Iterator[ValidationError]:
    from jsonschema import ValidationError

    texts = [one for one in instance if isinstance(one, str)] if isinstance(instance, list) else []
    if unique and len(set(texts)) != len(texts):
        yield ValidationError(f"{duplicate(texts)!r} is there twice")


def duplicate(values: Iterable[Value]) -> Value:
    """Return a value that occurs more than once. The caller knows that there is one."""
    return Counter(values).most_common(1)[0][0]


# Write the report file, ``tfbench-report/1``


def render(report: Report) -> str:
    """Render a report as JSON text."""
    content = {key: list(value) if isinstance(value, Iterator) else value for key, value in _content(report).items()}
    return render_json(content, 1) + "\n"


def lines(report: Report) -> Iterator[str]:
    """Yield the JSON text of a large report, a row per line, so that it is never in memory as a whole."""
    for number, (key, value) in enumerate(_content(report).items()):
        yield f"{',' if number else '{'}{render_json(key)}: "
        if not isinstance(value, Iterator):
            yield render_json(value) + "\n"
            continue
        before = "[\n"
        for row in value:
            yield before + render_json(row)
            before = ",\n"
        yield "]\n" if before == ",\n" else "[]\n"
    yield "}\n"


def _content(report: Report) -> JSON:
    """Return the keys of a report and their values. Long lists are iterators."""
    return {
        "schema": "tfbench-report/1",
        "policy": report.policy,
        "sides": dict(report.sides),
        "verdicts": (verdict.as_json() for verdict in report.verdicts),
        "standings": (variant_result.as_json() for variant_result in report.variant_results),
        "skipped": ({"case": skip.case.name, "reason": skip.reason} for skip in report.skips),
        "wall_seconds": round(report.wall_seconds, 3),
        **({"seconds_by_phase": _rounded(report.seconds_by_phase)} if report.seconds_by_phase else {}),
        **({"seconds_by_case": _rounded(report.seconds_by_case)} if report.seconds_by_case else {}),
        "seed": report.seed,
        "interrupted": report.interrupted,
        "due": iter(report.due),
        **({"shard": report.shard} if report.shard else {}),
        **({"suite": report.suite.as_json()} if report.suite else {}),
        **({"profiles": list(report.profiles)} if report.profiles else {}),
        **({"rounds": (one.as_json() for one in report.rounds)} if report.rounds else {}),
        **({"machines": list(report.machines)} if report.machines else {}),
        **({} if report.complete is None else {"complete": report.complete}),
    }


def _rounded(seconds: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 3) for name, value in seconds.items()}


# Read a report file from an untrusted source, and refuse a file that violates the schema


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
        policy=content["policy"],
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
        reason=_reason_of(row["reason"]),
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


def _reason_of(row: JSON) -> Reason:
    """Build a reason, which keeps its message, from its object in a report."""
    notes = tuple(_reason_of(note) for note in row.get("notes", ()))
    return Reason(_plain(row["code"]), printable(row["message"]), row.get("facts", {}), notes)


def _suite_of(row: JSON) -> SuiteVerdict:
    """Build the verdict on the mean of all cases from its object in a report."""
    reason = _reason_of(row["reason"])
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
