"""Extracting a case into one file, and running that file."""

import ast
import importlib.util
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest

from tfbench.errors import TfbenchError, UsageError
from tfbench.model import Case, Ratio
from tfbench.policy import preset
from tfbench.sides.spec import Side
from tfbench.suite.axes import Variant
from tfbench.versions import repro, standalone
from tfbench.versions.repro import ReproResult, about, bug_report, compose, run

AXES = """
    import numpy as np
    import pytest

    from helpers import factors
    from helpers.deep import level as made
    from tfbench import Axis, Level, across

    # How much is done.
    AMOUNT = Axis("amount", Level("little", times=lambda: 1, unused=lambda: pytest.no), Level("much", times=factors.much))
    ONE = AMOUNT.only("much")
    KIND = Axis("kind", made("plain", 2), made("odd", 3, env={"KIND": "odd"}))
    SIZE = 7


    class Part:
        size = SIZE

        def __init__(self, value):
            self.value = value
"""
HELPERS = {
    "helpers/__init__.py": "",
    "helpers/factors.py": "SIZE = 3\n\n\ndef much():\n    return SIZE\n",
    "helpers/deep.py": """
        from tfbench import Level

        from .factors import SIZE as OTHER


        def level(name, bound, env=None):
            return Level(name, requires=lambda: missing(), env=env, bound=lambda: bound + OTHER, setup=lambda: None)
    """,
}
BENCHMARK = """
    import os
    from functools import partial

    import pytest

    from axes import KIND, ONE, Part
    from axes import SIZE as length
    import axes
    from tfbench import across

    os.environ["SEEN"] = "1"


    def _work(amount, size, values=length):
        SIZE = [size for size in range(size)]
        return [amount * one for one in SIZE] + [values, axes.SIZE, Part(1).size]


    @pytest.mark.parametrize("shape", [(2, 3)])
    @across(ONE, KIND)
    def test_work(bench, variant, shape):
        '''Do it.'''
        step = partial(_work, variant.times() + variant.bound(), shape[0])
        if variant["kind"] == "never":
            pytest.skip("never")
        bench(step, flops=unknown, **variant.nowhere())
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(benchmark=BENCHMARK, name="test_work", case=None, params=None, fixtures=None, variables=None, **files):
        for file, text in {"axes.py": AXES, **HELPERS, "test_mine.py": benchmark, **files}.items():
            path = tmp_path / file
            path.parent.mkdir(exist_ok=True)
            path.write_text(textwrap.dedent(text))
        spec = importlib.util.spec_from_file_location("test_mine", tmp_path / "test_mine.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for one in [one for one in sys.modules if one.partition(".")[0] in ("axes", "helpers")]:
            monkeypatch.delitem(sys.modules, one)  # the next test has its own
        function = SimpleNamespace(
            function=getattr(module, name), originalname=name, cls=None, callspec=SimpleNamespace(params=params or {}),
            _fixtureinfo=SimpleNamespace(initialnames=tuple(fixtures or ()), name2fixturedefs=fixtures or {}),
        )  # fmt: skip
        case = case or Case(f"test_mine.py::{name}", name, name)
        side = Side("baseline", sys.executable, tmp_path)
        return compose(function, case, (side, side), [tmp_path], "about it", 4, variables or {})

    return make


WORK = Case("test_mine.py::test_work", "test_work", "g", (("amount", "much"), ("kind", "odd")), env=(("KIND", "odd"),))
PARAMS = {"variant": Variant(), "shape": (2, 3)}


def test_a_benchmark_is_extracted_with_its_levels_helpers_and_constants(project, tmp_path):
    text = project(case=WORK, params=PARAMS)
    assert not re.search(r"^(import|from) (pytest|tfbench|axes|helpers)|tfbench\.", text, re.MULTILINE)
    assert (
        "ENVIRONMENT: dict[str, str] = {'KIND': 'odd'}" in text
        or 'ENVIRONMENT: dict[str, str] = {"KIND": "odd"}' in text
    )
    assert "unused" not in text
    assert "requires=lambda" not in text
    assert "flops" not in text
    assert "def shared" not in text
    assert "\nLAUNCHES = 4 " in text
    # What the processes of the sides run, but with a plain call in the place of the race.
    text = text.replace("bench=StepServer()", "bench=lambda step: print(step())")
    (tmp_path / "repro.py").write_text(text.replace("limit_threads()\n", ""))
    done = subprocess.run(
        [sys.executable, "repro.py", "--child"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout == "[0, 9, 7, 7, 7]\n", done.stderr


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("import scipy\ndef test_work(bench):\n    bench(scipy.add, 1)\n", r"test_mine.py:1: it needs scipy"),
        ("def test_work(bench, mine):\n    bench(mine)\n", "takes the fixture mine"),
        ("import axes\ndef test_work(bench):\n    bench(axes.SIZE.x, axes)\n", "uses the module axes as a value"),
        ("import pytest\ndef test_work(bench):\n    bench(pytest.approx, 1)\n", "uses pytest.approx"),
        ("def test_work(bench):\n    import scipy\n    bench(scipy.add)\n", "has `import scipy` inside a function"),
        ("from axes import *\ndef test_work(bench):\n    bench(Part, 1)\n", "import Part by its name"),
        ("def test_work(bench):\n    bench.weave(1)\n", "uses bench.weave"),
        ("test_work = lambda bench: bench(len, 'a')\n", "not defined there by `def`"),
        ("def test_work(bench):\n    bench(open, __file__)\n", "it uses __file__"),
        ("def test_work(bench):\n    bench(len, 'a', cache='cold')\n", r"it uses bench\(cache="),
        (
            "N = 1\nM = N\nN = 2\ndef test_work(bench):\n    bench(len, 'a' * M)\n",
            r"py:3: N is bound in the lines 1, 3",
        ),
        ("N = 1\nN += 1\ndef test_work(bench):\n    bench(len, 'a' * N)\n", r"py:2: N is bound in the lines 1, 2"),
        (
            "N = []\nfor i in range(3):\n    N.append(i)\ndef test_work(bench):\n    bench(len, N)\n",
            "py:2: .* may change N",
        ),
        (
            "def twice(f):\n    return lambda bench: f(bench)\n@twice\ndef test_work(bench):\n    bench(len, 'a')\n",
            "py:3: a decorator wraps test_work",
        ),
    ],
)
def test_what_cannot_be_extracted_is_one_line_with_its_place(project, source, text):
    with pytest.raises(UsageError, match=text) as refused:
        project(source)
    assert "\n" not in str(refused.value)


def test_a_parameter_that_is_no_plain_value_is_refused(project):
    with pytest.raises(UsageError, match="the parameter size is no plain value"):
        project("def test_work(bench, size):\n    bench(len, size)\n", params={"size": object()})


def test_an_axis_that_is_made_elsewhere_is_refused(project):
    benchmark = """
        from tfbench import Axis, Level, across
        AXIS = [Axis("amount", Level("much"))][0]
        @across(AXIS)
        def test_work(bench, variant):
            bench(len, "a")
    """
    with pytest.raises(UsageError, match="its axis amount is not declared as NAME = Axis"):
        project(benchmark, case=Case("c", "test_work", "g", (("amount", "much"),)), params={"variant": Variant()})


@pytest.mark.parametrize("name", ["size", "_xunit_setup_module_fixture_test_mine", "bench"])
def test_a_fixture_of_the_project_is_refused_even_if_no_argument_names_it(project, name):
    """A parametrized one passes for a plain parameter, whose value is not what the fixture makes of it."""

    def made_of_it(request):
        return 100 * request.param

    fixtures = {name: [SimpleNamespace(func=made_of_it)]}
    benchmark = "def test_work(bench, size=1):\n    bench(len, 'a' * size)\n"
    with pytest.raises(
        UsageError, match=f"(takes|runs with) the fixture {'setup_module' if 'xunit' in name else name}"
    ):
        project(benchmark, params={"size": 1}, fixtures=fixtures)


def test_a_fixture_that_pytest_makes_of_a_parameter_is_plain(project):
    made = SimpleNamespace(func=pytest.Function)  # of a module of pytest
    assert "size=3" in project(
        "def test_work(bench, size):\n    bench(len, 'a' * size)\n", params={"size": 3}, fixtures={"size": [made]}
    )


def test_what_a_helper_module_does_on_import_is_in_the_file(project, tmp_path):
    helper = "import os\nSIZES = [1]\nSIZES.append(7)\nos.environ['SEEN'] = '1'\nsys = os.sys\nsys.path.append('x')\n"
    text = project("from aid import SIZES\ndef test_work(bench):\n    bench(print, SIZES)\n", **{"aid.py": helper})
    assert text.index("SIZES = [1]") < text.index("SIZES.append(7)") < text.index("os.environ['SEEN'] = '1'")
    assert text.index("os.environ['SEEN'] = '1'") < text.index("def test_work(")


def test_a_local_name_does_not_hide_the_one_of_a_module(project, tmp_path):
    text = project("""
        import axes
        from helpers import factors

        def made(SIZE, math):
            return [SIZE, axes.SIZE, factors.SIZE, [axes.SIZE for much in range(factors.much())]]

        def test_work(bench):
            bench(made, 1, 2)
    """)
    (tmp_path / "repro.py").write_text(
        text.replace("bench=StepServer()", "bench=lambda step, *given: print(step(*given))").replace(
            "limit_threads()\n", ""
        )
    )
    done = subprocess.run(
        [sys.executable, "repro.py", "--child"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout == "[1, 7, 3, [7, 7, 7]]\n", done.stderr


def test_a_method_is_no_function_of_its_module(project):
    text = project("""
        from math import log

        def warm(x):
            return log(x)

        class Part:
            def log(self):
                return self.warm()

            def warm(self):
                return warm(2)

        def test_work(bench):
            bench(Part().log)
    """)
    assert "def warm_(x):\n    return log(x)" in text
    assert "        return self.warm()\n\n    def warm(self):\n        return warm_(2)" in text


def test_the_file_has_the_settings_that_both_sides_ran_with(project, monkeypatch):
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "0")
    monkeypatch.setenv("TF_NUM_INTEROP_THREADS", "8")  # of the user, which measuring processes do not have
    text = project("def test_work(bench):\n    bench(len, 'a')\n", variables={"MODE": "slow"})
    found = re.search(r"\nENVIRONMENT: dict\[str, str\] = (.*)  #", text)
    assert {"TF_ENABLE_ONEDNN_OPTS": "0", "MODE": "slow"}.items() <= ast.literal_eval(found[1]).items()
    assert "INTEROP" not in found[1]


def test_no_process_of_a_file_outlives_its_time(tmp_path):
    file = tmp_path / "repro.py"
    file.write_text("import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'])\n")
    with pytest.raises(TfbenchError, match="took longer than"):
        run(file, sys.executable, sys.executable, 1.0)
    token = str(tmp_path).encode()
    alive = [
        place
        for place in Path("/proc").glob("[0-9]*/environ")
        if place.parent.name != str(os.getpid()) and token in _read(place)
    ]
    assert alive == []


def _read(place):
    try:
        return place.read_bytes()
    except OSError:
        return b""


def test_names_that_collide_are_told_apart(project):
    text = project(
        "import json\nfrom axes import SIZE\nfrom helpers.factors import SIZE as S2, much\n"
        "def main():\n    return json.dumps([SIZE, S2, much()])\ndef test_work(bench):\n    bench(main)\n"
    )
    assert "def main_()" in text
    assert "[SIZE, SIZE_, much()]" in text
    assert text.count("import json") == 1


FAKE = """
    import os
    __version__ = os.environ.get("FAKE", "1")
    class config:
        list_physical_devices = staticmethod(lambda kind: [])
        class threading:
            set_intra_op_parallelism_threads = set_inter_op_parallelism_threads = staticmethod(lambda n: None)
"""
SPINS = """
    import os, time
    def step():
        end = time.perf_counter() + 1e-4 * float(os.environ.get("AMOUNT", "1"))
        while time.perf_counter() < end:
            pass
        return 1
    def test_work(bench):
        CALL(step)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("call", "unit"), [("bench", "1e-4"), ("bench.once", "0.03")])
def test_the_file_races_two_interpreters(project, tmp_path, call, unit):
    """Without TensorFlow: a module of its name is in the place of it."""
    text = project(SPINS.replace("CALL", call).replace("1e-4", unit), **{"tensorflow.py": FAKE})
    text = text.replace("OTHER_ENVIRONMENT: dict[str, str] = {}", "OTHER_ENVIRONMENT: dict[str, str] = {'AMOUNT': '3'}")
    file = tmp_path / "repro.py"
    file.write_text(text)
    command = [sys.executable, str(file), "--launches", "2", "--seconds", "0.1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(
        r"ratio 0\.[2-7]\d+ \(launches from .*\); the difference is shown: faster in every launch", done.stdout
    )
    shown = run(file, sys.executable, sys.executable, 60)
    assert shown.shown
    assert 0.2 < shown.ratio < 0.8
    with pytest.raises(TfbenchError, match="took longer than"):
        run(file, sys.executable, sys.executable, 0.05)
    file.write_text(text.replace("{'AMOUNT': '3'}", "{'AMOUNT': 'x'}"))
    with pytest.raises(TfbenchError, match=r"fails(.|\n)*could not convert string"):
        run(file, sys.executable, sys.executable, 60)


def test_the_report_names_versions_ratio_causes_and_command(tmp_path):
    sides = {
        "tensorflow==2.17.1": {"python": "3.11.7", "packages": {"tensorflow": "2.17.1", "numpy": "1.26"}},
        "tensorflow==2.21.0": {"python": "3.11.7", "packages": {"tensorflow": "2.21.0"}},
    }
    case = Case("b.py::test_work", "test_work", "g")
    shown = ReproResult(1.56, True, "ratio 1.560 (launches from 1.540 to 1.570)")
    raced, changed = (Ratio(1.5, 1.4, 1.6, 0.95), 6), ["XLA: 24 kernels, 3 now", "add +1 ms"]
    text = bug_report(case, sides, raced, shown, changed, "tfbench repro x", "repro_work.py", "print(1)\n")
    assert text.startswith("# test_work is 1.50 times slower with tensorflow==2.21.0 than with tensorflow==2.17.1\n")
    for part in (
        "1.500 (1.400 to 1.600)",
        "| numpy | 1.26 | - |",
        shown.output,
        "- XLA: 24",
        "- add +1",
        "`tfbench repro x`",
    ):
        assert part in text
    assert "```python\nprint(1)\n```" in text
    assert "race" in about(case, *sides)


def test_the_file_keeps_the_numbers_of_threads_that_a_side_sets(monkeypatch):
    started = []
    monkeypatch.setattr(standalone.subprocess, "Popen", lambda *_, env, **__: started.append(env))
    for name in standalone.THREADS:
        monkeypatch.setenv(name, "8")
    for settings in ({}, {"OMP_NUM_THREADS": "2", "TF_NUM_INTRAOP_THREADS": "3"}):
        standalone.SideProcess("python", "file", settings)
    found = [{name: env[name] for name in standalone.THREADS if name in env} for env in started]
    assert found == [{"OMP_NUM_THREADS": "1"}, {"OMP_NUM_THREADS": "2", "TF_NUM_INTRAOP_THREADS": "3"}]
    threads: dict[str, int] = {}
    config = SimpleNamespace(
        set_intra_op_parallelism_threads=lambda n: threads.update(intra=n),
        set_inter_op_parallelism_threads=lambda n: threads.update(inter=n),
    )
    monkeypatch.setitem(sys.modules, "tensorflow", SimpleNamespace(config=SimpleNamespace(threading=config)))
    monkeypatch.delenv("TF_NUM_INTEROP_THREADS")
    standalone.limit_threads()
    assert threads == {"inter": 1}


def test_the_report_names_both_tensorflow_and_keras_where_both_differ():
    sides = {
        "2.15.1": {"python": "3.11", "packages": {"tensorflow": "2.15.1", "keras": "2.15.0", "numpy": "1.26"}},
        "tensorflow-cpu==2.21.0": {"python": "3.11", "packages": {"tensorflow-cpu": "2.21.0", "keras": "3.12.0"}},
    }
    shown = ReproResult(1.56, True, "")
    ratio = Ratio(1.5, 1.4, 1.6, 0.95)
    case = Case("b.py::test_work", "test_work", "g")
    text = bug_report(case, sides, (ratio, 6), shown, [], "", "repro_work.py", "")
    title = "slower with TensorFlow 2.21.0 and Keras 3.12.0 than with TensorFlow 2.15.1 and Keras 2.15.0"
    assert title in text.partition("\n")[0]
    assert "Both TensorFlow and Keras differ" in text
    sides["tensorflow-cpu==2.21.0"]["packages"]["keras"] = "2.15.0"
    text = bug_report(case, sides, (ratio, 6), shown, [], "", "repro_work.py", "")
    assert "slower with tensorflow-cpu==2.21.0 than with 2.15.1" in text.partition("\n")[0]
    assert "Both TensorFlow" not in text


def test_a_file_that_does_not_show_the_slowdown_is_refused(monkeypatch):
    monkeypatch.setattr(repro, "run", lambda *given: ReproResult(0.9, False, "ratio 0.900"))
    side = Side("a", sys.executable, None)
    with pytest.raises(TfbenchError, match=r"a ratio of 1\.500, the extracted file 0\.900"):
        repro._confirmed("", "repro_work.py", (side, side), 1.5, preset("quick"))


def test_a_step_that_takes_inputs_by_turn_is_timed_with_all_of_them(monkeypatch):
    timed = set()

    class Side:
        def __init__(self, *arguments):
            self.calls = 0

        def answer(self):
            return {"once": 0.0}

        def ask(self, kind, *values):
            if kind == "settle":
                return 1e-3
            calls, primes = values
            inputs = range(self.calls + primes, self.calls + primes + calls)
            self.calls = inputs.stop
            timed.update(number % 2 for number in inputs)
            return 1e-3

        def end(self):
            pass

    monkeypatch.setattr(standalone, "SideProcess", Side)
    standalone.launch("file", "python", 1.0)
    assert timed == {0, 1}
