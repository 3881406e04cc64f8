"""The public names: what editors and type checkers see, and reports read by a program."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import tfbench
from tests.fakes.report import complete, row
from tfbench import ReportError, load_report
from tfbench.report import json_format

ROOT = Path(__file__).resolve().parents[1]
USER = """
from functools import partial
from pathlib import Path

from tfbench import Axis, Bench, Level, Outcome, Shared, Variant, across, load_report

PRECISION = Axis("precision", Level("float32"), Level("float16"))


@across(PRECISION)
def test_product(bench: Bench, variant: Variant) -> None:
    bench(sum, [1, 2], flops=2, expect_ops={"MatMul": 1}, max_traces=1)
    bench.once(partial(sorted, [2, 1], reverse=True), items=2.0, ceiling="flops")


def build(folder: Path, size: int) -> None:
    (folder / "model").write_text(str(size))


def test_shared(bench: Bench, shared: Shared) -> None:
    bench((shared(build, 3) / "model").read_text)


def regressed(path: str) -> list[str]:
    return [one.case.name for one in load_report(path).verdicts if one.outcome is Outcome.REGRESSED]
"""
WRONG = USER.replace("flops=2", 'flops="two"')


@pytest.mark.slow
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_a_module_of_a_user_is_typed(tmp_path, checker):
    uv = Path(sys.executable).with_name("uv")
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": "strict", "extraPaths": [str(ROOT)]}))
    (tmp_path / "mypy.ini").write_text(f"[mypy]\nstrict = true\nfollow_imports = silent\nmypy_path = {ROOT}\n")
    pyright = [uv, "tool", "run", "--quiet", "pyright", "--pythonpath", sys.executable]
    for name, text, code in (("right.py", USER, 0), ("wrong.py", WRONG, 1)):
        (tmp_path / name).write_text(text)
        command = pyright if checker == "pyright" else [sys.executable, "-m", "mypy"]
        done = subprocess.run([*command, name], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        assert ('"flops"' in done.stdout) == bool(code)


def test_a_report_is_read(tmp_path):
    (tmp_path / "r.json").write_text(json_format.render(complete([row("b/t.py::x", "regressed")])))
    (verdict,) = load_report(tmp_path / "r.json").verdicts
    assert (verdict.case.name, verdict.outcome) == ("b/t.py::x", tfbench.Outcome.REGRESSED)
    with pytest.raises(ReportError, match=r"no\.json"):
        load_report(str(tmp_path / "no.json"))


def test_every_public_name_exists():
    assert all(hasattr(tfbench, name) for name in tfbench.__all__)
    assert sorted(tfbench.__all__) == tfbench.__all__
