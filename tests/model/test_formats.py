"""File formats: their published schemas follow from the classes, and errors name the place."""

import datetime
import json
import runpy
from pathlib import Path

import jsonschema
import pytest

from tests.fakes.fleet_job import plan
from tests.fakes.run_report import run_report
from tests.report.test_json_reader import REPORT
from tests.storage.test_baselines import BASELINE
from tests.storage.test_history import ACCEPTED, FULL
from tfbench.fleet.jobs import FleetFolder
from tfbench.model import Ratio
from tfbench.model.formats import convert, line, read
from tfbench.report import json_format
from tfbench.report.artifact import as_json
from tfbench.ruling import Entry
from tfbench.storage.baselines import Baselines
from tfbench.storage.history import History

ROOT = Path(__file__).parents[2]
SCHEMAS = ROOT / "tfbench" / "schemas"


def test_the_published_schemas_are_those_of_the_classes():
    """``make schemas`` writes them."""
    written = runpy.run_path(str(ROOT / "docs" / "schemas.py"))["texts"]()
    assert {path: path.read_text() for path in SCHEMAS.iterdir()} == written
    identities = {json.loads(text)["$id"] for text in written.values()}
    assert identities == {f"urn:tfbench-{name}:1" for name in ("report", "job", "baseline", "history", "accepted")}


def files(folder):
    """Return the name of a schema, and content that tfbench writes."""
    plan(folder / "fleet", 1, cases=2)
    history = History(folder)
    lines = [*history.record(FULL).read_text().splitlines(), *history.accept(ACCEPTED).read_text().splitlines()]
    yield "report", json_format.render(run_report(24))
    yield "report", json_format.render(REPORT)
    yield "baseline", Baselines(folder / "baselines").save("first", BASELINE).read_text()
    yield "job", FleetFolder(folder / "fleet").job_file(1).read_text()
    yield "accepted", as_json([Entry("b/test_x.py::test_x", "agreed", datetime.date(2027, 1, 31), up_to=1.1)])
    yield from (("history", text) for text in lines)


def test_what_tfbench_writes_follows_the_published_schemas(tmp_path):
    for name, text in files(tmp_path):
        jsonschema.Draft202012Validator(json.loads((SCHEMAS / f"{name}.json").read_text())).validate(json.loads(text))


def test_what_the_schema_of_reports_refuses_is_refused_as_well_when_read():
    validator = jsonschema.Draft202012Validator(json.loads((SCHEMAS / "report.json").read_text()))
    row = json.loads(json_format.render(REPORT))["variant_results"][0]
    for key, value in (("median_seconds", 0), ("facts", {"flops": "x"}), ("outcome", "fine"), ("case", "a\nb")):
        content = {**json.loads(json_format.render(REPORT)), "variant_results": [{**row, key: value}]}
        assert not validator.is_valid(content)
        with pytest.raises(json_format.ReportError, match=rf"at variant_results\[0\]\.{key}"):
            json_format.report_of(content, "r.json")


def test_an_unbounded_end_and_an_unknown_center_are_null_in_the_file():
    text = line(Ratio(float("nan"), 0.0, float("inf"), 0.9))
    assert text == '{"center":null,"low":0.0,"high":null,"confidence":0.9}'
    found = read(Ratio, text)
    assert found.center != found.center
    assert found.high == float("inf")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "at the top, Expected `object`, got `array`"),
        ({"center": 1}, "at the top, Object missing required field `low`"),
        ({"center": -1, "low": 1, "high": 2, "confidence": 0.9}, "at center, expected a number >= 0 or null, got -1"),
        ({"center": 1, "low": "1", "high": 2, "confidence": 0.9}, "at low, Expected `float`, got `str`"),
    ],
)
def test_an_error_names_its_place(content, message):
    with pytest.raises(ValueError, match=r"^at ") as caught:
        convert(Ratio, content)
    assert str(caught.value) == message
