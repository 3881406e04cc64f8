"""Exports, read with the tools that they are for."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import junitparser
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.fakes.report import CODE, complete, row
from tfbench import cli
from tfbench.errors import SideError
from tfbench.model import Case, Outcome, Ratio, Skip, VariantResult
from tfbench.report import json_writer
from tfbench.sides import uv

if sys.version_info >= (3, 11):
    import tomllib
else:  # there pytest itself needs tomli
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
RATIO = Ratio(1.052, 1.031, 1.074, 0.99)
SLOW = "benchmarks/test_linear.py::test_matmul[compiler=none,precision=float32]"
HOSTILE = "b/test_x.py::TestIt::test_y[a=\"b\\c\n\u202e<&>\x1b]'::z]"


def report(**more):
    slow = replace(row(SLOW, Outcome.REGRESSED, ratio=RATIO, wall_seconds=5.25, launches=7, text="5.2% slower"))
    case = replace(slow.case, workload="test_matmul", variant=(("compiler", "none"), ("precision", "float32")))
    slow = replace(slow, case=case)
    memory = replace(
        row(SLOW, Outcome.INCONCLUSIVE, "peak_host_memory", ratio=Ratio(1.0, 0.0, float("inf"), 0.9)), case=case
    )
    rows = [
        slow, memory, row("b/test_x.py::test_same"), row("b/test_x.py::test_open", Outcome.INCONCLUSIVE),
        row("b/test_x.py::test_broken", Outcome.ERROR, text="ValueError: \x00 \x1b[31m"), row(HOSTILE),
        row("b/test_x.py::test_same", Outcome.INCONCLUSIVE, "first_call"),
        row("b/test_x.py::test_gone", Outcome.MISSING),
        replace(row(SLOW, Outcome.UNCHANGED, "graph_ops", values=(3.0, 4.0), unit="ops"), case=case),
    ]  # fmt: skip
    variant = VariantResult(case, SLOW, 1.5e-4, None, None, 7, 280)
    skips = [Skip(Case("b/test_x.py::test_gpu", "w", "g"), "no GPU")]
    sides = {"baseline": {"spec": "git:main", **CODE}, "contender": {"spec": "working tree", **CODE}}
    return complete(rows, skips, variant_results=(variant,), sides=sides, wall_seconds=12.0, **more)


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "r.json"
    path.write_text(json_writer.render(report()))
    return path


def export(*words):
    return cli.main(["export", *map(str, words)])


def test_junit_has_a_test_case_per_case_with_the_outcomes_of_pytest(saved, tmp_path, capsys):
    assert export(saved, "--junit", tmp_path / "j.xml") == 0
    assert "7 test cases, 1 failed, 1 with errors" in capsys.readouterr().out
    (suite,) = junitparser.JUnitXml.fromfile(str(tmp_path / "j.xml"))
    assert (suite.tests, suite.failures, suite.errors, suite.skipped) == (7, 1, 1, 3)
    found = {case.name: case for case in suite}
    slow = found["test_matmul[compiler=none,precision=float32]"]
    assert slow.classname == "benchmarks.test_linear"
    assert slow.time == 5.25
    assert isinstance(slow.result[0], junitparser.Failure)
    assert slow.result[0].message == "time regressed: 5.2% slower"
    properties = {one.get("name"): one.get("value") for one in slow._elem.iter("property")}
    assert (properties["ratio"], properties["graph_ops"]) == ("1.0520", "unchanged")
    assert isinstance(found["test_broken"].result[0], junitparser.Error)
    assert isinstance(found["test_open"].result[0], junitparser.Skipped)
    assert isinstance(found["test_gone"].result[0], junitparser.Skipped)
    assert found["test_gpu"].result[0].message == "no GPU"
    assert not found["test_same"].result  # an inconclusive metric does not fail a test either


def test_junit_of_a_benchmark_in_a_class_is_named_as_pytest_names_it(saved, tmp_path):
    export(saved, "--junit", tmp_path / "j.xml")
    names = {(one.get("classname"), one.get("name")) for one in ElementTree.parse(tmp_path / "j.xml").iter("testcase")}
    (hostile,) = (name for name in names if name[0].endswith("TestIt"))
    assert hostile[0] == "b.test_x.TestIt"
    assert hostile[1].startswith("test_y[")


def test_prometheus_reads_every_number(saved, tmp_path):
    assert export(saved, "--prometheus", tmp_path / "p.prom") == 0
    text = (tmp_path / "p.prom").read_text()
    found = {one.name: one for one in text_string_to_metric_families(text)}
    labels = {"case": SLOW, "workload": "test_matmul", "variant": "compiler=none,precision=float32"}
    (ratio,) = (one for one in found["tfbench_ratio"].samples if one.labels["metric"] == "time")
    assert ratio.labels == {**labels, "metric": "time"}
    assert ratio.value == 1.052
    assert found["tfbench_median_seconds"].samples[0].value == 1.5e-4
    verdicts = {one.labels["outcome"]: one.value for one in found["tfbench_verdicts"].samples}
    assert verdicts["regressed"] == 1
    assert verdicts["improved"] == 0
    assert found["tfbench_run_info"].samples[0].labels["baseline"] == "git:main"
    assert found["tfbench_complete"].samples[0].value == 1
    assert any("TestIt" in one.labels["case"] for one in found["tfbench_verdict"].samples)
    assert not set(text) & {"\x1b", "\u202e", "\x00"}


TENSORBOARD = """
import json, sys
from pathlib import Path
from tfbench import cli
report, logs = sys.argv[1:]
for _ in range(2):  # a second export replaces the first
    assert cli.main(["export", report, "--tensorboard", logs]) == 0
assert "tensorflow" not in sys.modules
import tensorboard.compat
tensorboard.compat.notf = True  # TensorBoard's reader then does without TensorFlow, which takes seconds
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import metadata
(folder,) = Path(logs).glob("test_matmul*")
assert len(list(folder.iterdir())) == 1
read = EventAccumulator(str(folder))
read.Reload()
start = metadata.SESSION_START_INFO_TAG
content = metadata.parse_session_start_info_plugin_data(read.SummaryMetadata(start).plugin_data.content)
scalars = {tag: read.Tensors(tag)[0].tensor_proto.float_val[0] for tag in read.Tags()["tensors"] if tag != start}
print("FOUND", json.dumps([scalars, {name: value.string_value for name, value in content.hparams.items()}]))
"""


def found_by(program, *words, python=sys.executable):
    """Return what a program prints as JSON after FOUND."""
    done = subprocess.run(
        [python, "-c", program, *map(str, words)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("FOUND "))
    return json.loads(line.removeprefix("FOUND "))


def test_tensorboard_reads_scalars_and_hyperparameters_and_no_tensorflow_is_imported(saved, tmp_path):
    scalars, parameters = found_by(TENSORBOARD, saved, tmp_path / "logs")
    assert {"time_ratio", "time_ratio_low", "median_seconds", "graph_ops_contender", "launches"} <= set(scalars)
    assert scalars["time_ratio"] == pytest.approx(1.052)
    assert parameters == {"workload": "test_matmul", "compiler": "none", "precision": "float32"}


def test_a_format_is_required_and_a_missing_library_is_named(saved, capsys, monkeypatch):
    assert export(saved) == 2
    assert "name at least one format: --junit PATH" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.delitem(sys.modules, "tfbench.report.exports.prometheus", raising=False)
    assert export(saved, "--prometheus", "x") == 2
    assert "--prometheus needs prometheus_client: pip install 'tfbench[prometheus]'" in capsys.readouterr().err


def test_a_target_that_cannot_be_written_is_named(saved, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert export(saved, "--junit", tmp_path / "file" / "j.xml") == 5
    assert "tfbench export: " in capsys.readouterr().err


MLFLOW = """
import json, sys
from mlflow.tracking import MlflowClient
from tfbench import cli
report, uri = sys.argv[1:]
assert cli.main(["export", report, "--mlflow", uri]) == 0
client = MlflowClient(uri)
(run,) = client.search_runs([client.get_experiment_by_name("tfbench").experiment_id])
print("FOUND", json.dumps([run.data.metrics, run.data.params, run.data.tags, run.info.status]))
assert "tensorflow" not in sys.modules
"""


@pytest.mark.slow
def test_mlflow_reads_the_run_from_its_database(saved, tmp_path):
    """In an environment of its own, because MLflow brings a web server and a plugin of pytest."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    library = project["optional-dependencies"]["mlflow"]
    python = tmp_path / "env/bin/python"
    install = [
        "pip",
        "install",
        "-q",
        "--python",
        str(python),
        *library,
        "sqlalchemy",
        "alembic",
        *project["dependencies"],
    ]
    try:
        uv.run("venv", "-q", "--python", sys.executable, str(tmp_path / "env"))
        uv.run(*install)
    except SideError as error:
        pytest.skip(f"uv {' '.join(install)}: {error}")
    store = f"sqlite:///{tmp_path / 'mlflow.db'}"
    metrics, params, tags, status = found_by(MLFLOW, saved, store, python=python)
    assert metrics["time_ratio/test_matmul_compiler_none_precision_float32"] == 1.052
    assert metrics["median_seconds/test_matmul_compiler_none_precision_float32"] == 1.5e-4
    assert params == {"policy": "quick", "baseline": "git:main", "contender": "working tree"}
    assert tags["outcome/test_matmul_compiler_none_precision_float32"] == "regressed"
    assert (tags["complete"], status) == ("true", "FINISHED")
