"""The export to TensorBoard, read with TensorBoard."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.report import CODE, complete, judged, row, variant
from tfbench import cli
from tfbench.model import Case, Outcome, Ratio, Reason, Verdict
from tfbench.report import json_format

ROOT = Path(__file__).parents[2]
SLOW = "benchmarks/test_linear.py::test_matmul[compiler=none,precision=float32]"


@pytest.fixture
def saved(tmp_path):
    case = Case(SLOW, "test_matmul", SLOW, (("compiler", "none"), ("precision", "float32")))
    why = Reason("code", "why")
    rows = [
        judged(case, Outcome.REGRESSED, why, ratio=Ratio(1.052, 1.031, 1.074, 0.99), launches=7), row("b/test_x.py::test_broken", Outcome.ERROR, text="ValueError: \x00 \x1b[31m"),
        Verdict.of(case, Outcome.INCONCLUSIVE, why, "peak_host_memory", ratio=Ratio(1.0, 0.0, float("inf"), 0.9)),
        Verdict.of(case, Outcome.UNCHANGED, why, "graph_ops", values=(3.0, 4.0), unit="ops"),
    ]  # fmt: skip
    sides = {"baseline": {"spec": "git:main", **CODE}, "contender": {"spec": "working tree", **CODE}}
    report = complete(rows, [], variant_results=(variant(case, SLOW, 1.5e-4, None, None, 7, 280),), sides=sides)
    path = tmp_path / "r.json"
    path.write_text(json_format.render(report))
    return path


TENSORBOARD = """
import json, sys
from pathlib import Path
from tfbench import cli
report, logs = sys.argv[1:]
for _ in range(2):  # a second export replaces the first
    assert cli.main(["report", report, "--tensorboard", logs]) == 0
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


def test_tensorboard_reads_scalars_and_hyperparameters_and_no_tensorflow_is_imported(saved, tmp_path):
    program = [sys.executable, "-c", TENSORBOARD, str(saved), str(tmp_path / "logs")]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("FOUND "))
    scalars, parameters = json.loads(line.removeprefix("FOUND "))
    assert {"time_ratio", "time_ratio_low", "median_seconds", "graph_ops_contender", "launches"} <= set(scalars)
    assert scalars["time_ratio"] == pytest.approx(1.052)
    assert parameters == {"workload": "test_matmul", "compiler": "none", "precision": "float32"}


def test_without_tensorboard_the_extra_is_named_before_anything_is_written(saved, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    monkeypatch.delitem(sys.modules, "tfbench.report.tensorboard", raising=False)
    assert cli.main(["report", str(saved), "--tensorboard", str(tmp_path / "logs")]) == 2
    assert "--tensorboard needs tensorboard: pip install tensorboard" in capsys.readouterr().err


def test_a_target_that_cannot_be_written_is_named(saved, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert cli.main(["report", str(saved), "--tensorboard", str(tmp_path / "file" / "logs")]) == 5
    assert "tfbench report: " in capsys.readouterr().err
