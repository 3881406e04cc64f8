"""By what a renamed or moved benchmark is known again: its code and all that it uses in its modules."""

import sys
import textwrap

import pytest

import tfbench
from tfbench.plugin import cases
from tfbench.plugin.cases import scope_of

pytest_plugins = ["pytester"]
OLD = """
    import models
    import pytest

    SIZE = 3
    UNUSED = 1

    @pytest.fixture
    def data():
        return [SIZE]

    def step(x):
        return models.run(x)

    def test_main(bench, data):
        '''Races a step.'''
        bench(step, data)
"""


@pytest.fixture
def scopes(pytester):
    """Returns the digest of each benchmark in a folder with these files, by its function's name."""
    (pytester.path / "conftest.py").write_text("import pytest\n\n@pytest.fixture\ndef bench():\n    return print\n")

    def collect(**files):
        for name, text in {"models": "def run(*values):\n    return values\n", **files}.items():
            place = pytester.path / name.replace("__", "/")
            place.parent.mkdir(exist_ok=True)
            place.with_suffix(".py").write_text(textwrap.dedent(text))
        items, _ = pytester.inline_genitems(
            "-p", "no:cacheprovider", "--import-mode=importlib", f"-o=pythonpath={pytester.path}"
        )
        return {item.nodeid.partition("::")[2]: scope_of(item) for item in items}

    return collect


def of(scopes, old, new):
    """Returns whether the benchmark test_main of one file is known again in the other, as test_other."""
    found = scopes(test_old=old, test_new=new.replace("test_main", "test_other"))
    assert found["test_main"]
    return found["test_main"] == found["test_other"]


def test_a_benchmark_is_known_in_another_file_and_under_another_name(scopes):
    assert of(scopes, OLD, OLD)


def test_a_value_of_the_ini_file_that_it_reads_counts(scopes, pytester):
    old = """
        import pytest

        @pytest.fixture
        def size(pytestconfig):
            return pytestconfig.getini("python_classes"), pytestconfig.getini("unknown")

        def test_reads(bench, size):
            bench(step, size)

        def test_main(bench):
            bench(step)
    """
    found = []
    for text in ("python_classes = A", "python_classes = B", "python_classes = B\nnorecursedirs = C"):
        pytester.makeini(f"[pytest]\n{text}")
        found.append(scopes(test_old=old))
    assert len({scope["test_main"] for scope in found}) == 1
    assert found[0]["test_reads"] != found[1]["test_reads"] == found[2]["test_reads"] != ""


def test_what_it_does_not_use_comments_and_docstrings_do_not_count(scopes):
    assert of(scopes, OLD, OLD.replace("UNUSED = 1", "UNUSED = 2  # more") + "\n    def other():\n        pass\n")
    assert of(scopes, OLD, OLD.replace("UNUSED = 1", "UNUSED = {}\n    UNUSED['one'] = 1"))
    assert of(scopes, OLD, OLD.replace("Races a step.", "Races the step."))
    assert of(scopes, OLD, OLD.replace("        return models", "        'Runs.'\n        return models"))


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ("models.run(x)", "models.run(x) + 1"), ("SIZE = 3", "SIZE = 4"), ("import models", "import json as models"),
        ("return [SIZE]", "return [SIZE, SIZE]"), ("UNUSED = 1", "print()"), ("UNUSED = 1", "from os import *"),
        ("bench(step, data)", "bench(step, data, 1)"), ("UNUSED = 1", "pytestmark = pytest.mark.slow"),
        ("UNUSED = 1", "import sys; sys.ps3 = 1"),
        ("UNUSED = 1", "import sys; sys.__dict__['ps3'], other = 3, 4"),
    ],
)  # fmt: skip
def test_another_definition_assignment_import_fixture_or_statement_makes_it_another_one(scopes, before, now):
    assert before in OLD
    assert not of(scopes, OLD, OLD.replace(before, now))


def test_the_same_fixture_of_another_conftest_makes_it_another_one(scopes):
    test = "def test_main(bench, data):\n    bench(data)\n"
    fixture = "import pytest\n\n@pytest.fixture\ndef data():\n    return {}\n"
    found = scopes(
        a__conftest=fixture.format(1), b__conftest=fixture.format(2), c__conftest=fixture.format(1),
        a__test_a=test, b__test_b=test.replace("main", "other"), c__test_c=test.replace("main", "moved"),
    )  # fmt: skip
    assert found["test_main"] == found["test_moved"] != found["test_other"]


def test_the_same_import_of_a_file_elsewhere_makes_it_another_one(scopes):
    test = "from . import helpers\n\ndef test_main(bench):\n    bench(helpers.run)\n"
    found = scopes(
        a____init__="", a__helpers="run = 1\n", a__test_a=test, a__test_b=test.replace("main", "moved"),
        b____init__="", b__helpers="run = 2\n", b__test_c=test.replace("main", "other"),
    )  # fmt: skip
    assert found["test_main"] == found["test_moved"] != found["test_other"]


def test_the_place_of_tfbench_does_not_count(scopes, monkeypatch):
    # The process that collects another tree finds tfbench through a link, and the controller in its environment.
    test = "from tfbench import Axis\n\ndef test_main(bench):\n    bench(Axis)\n"
    there = scopes(test_old=test)["test_main"]
    monkeypatch.setattr(tfbench, "__file__", "/venv/lib/python3.12/site-packages/tfbench/__init__.py")
    assert scopes(test_new=test.replace("main", "other"))["test_other"] == there


def test_the_content_of_measured_code_beside_the_root_does_not_count(pytester, monkeypatch):
    root = pytester.path / "perf"
    package = pytester.path / "src" / "scope_measured.py"
    pytester.run("git", "init", "-q")
    for place in (root / "test_main.py", package):
        place.parent.mkdir()
    (root / "pytest.ini").write_text("[pytest]\n")
    (root / "test_main.py").write_text("import scope_measured\n\ndef test_main():\n    scope_measured.run()\n")
    monkeypatch.syspath_prepend(str(package.parent))
    found = []
    for content in ("run = print\n", "run = list\n"):
        package.write_text(content)
        items, _ = pytester.inline_genitems("-p", "no:cacheprovider", f"--rootdir={root}", str(root))
        monkeypatch.setitem(sys.modules, "scope_measured", items[0].module.scope_measured)  # pytester has removed it
        found += map(scope_of, items)
    assert found[0] == found[1] != ""


def test_a_data_file_in_the_benchmark_folders_counts_if_it_is_named(pytester):
    folder = pytester.mkdir("benchmarks")
    pytester.run("git", "init", "-q")
    (pytester.path / ".gitignore").write_text("*.out\n")
    text = "from pathlib import Path\n\ndef test_main():\n    Path('benchmarks/{}').read_text()\n"
    digests = {}
    for place, name in (("1", "a.csv"), ("2", "b.csv"), ("3", "*.csv"), ("4", "a.out")):
        (folder / f"test_{place}.py").write_text(text.format(name))
    for content in ("1", "2"):
        for name in ("a.csv", "a.out"):
            (folder / name).write_text(content)
        cases._all_data_files.cache_clear()
        cases._content.cache_clear()
        items, _ = pytester.inline_genitems("-p", "no:cacheprovider", "--import-mode=importlib")
        digests[content] = [scope_of(item) for item in items]
    changed = [before != now for before, now in zip(digests["1"], digests["2"], strict=True)]
    assert changed == [True, False, True, False]


@pytest.mark.parametrize(("hook", "counts"), [("runtest_setup(item)", True), ("report_header()", False)])
def test_a_hook_counts_if_pytest_calls_it_before_the_benchmark(pytester, hook, counts):
    pytester.makepyfile(test_main="def test_main():\n    print()\n")
    found = []
    for text in ("pass", "print(1)"):
        pytester.makeconftest(f"def pytest_{hook}:\n    {text}\n")
        items, _ = pytester.inline_genitems("-p", "no:cacheprovider", "--import-mode=importlib")
        found += map(scope_of, items)
    assert "" not in found
    assert (found[0] != found[1]) == counts


def test_a_method_is_known_with_its_class(scopes):
    text = "class TestX:\n    SIZE = {}\n    def test_main(self, bench):\n        bench(self.SIZE)\n"
    assert set(scopes(test_old=text.format(1))) == {"TestX::test_main"}
    first, same, other = (
        scopes(test_old=text.format(size).replace("test_main", name))[f"TestX::{name}"]
        for size, name in ((1, "test_main"), (1, "test_renamed"), (2, "test_main"))
    )
    assert first
    assert first == same != other
    assert scopes(test_old=text.format(1).replace("TestX", "TestRenamed"))["TestRenamed::test_main"] == first


@pytest.mark.parametrize(
    "text",
    [
        "def make(n):\n    def test_main(bench):\n        bench(n)\n    return test_main\n\ntest_main = make(1)\n",
        "from models import test_main\n",
        "class Base:\n    def test_main(self, bench):\n        bench(self.SIZE)\n\nclass TestX(Base):\n    SIZE = 1\n",
        "def work(bench):\n    pass\n\ntest_main = work\n",
    ],
)
def test_a_function_that_is_made_imported_or_inherited_is_unknown(scopes, text):
    found = scopes(models="def test_main(bench):\n    pass\n", test_old=text)
    assert list(found.values()) == [""]


def test_dynamic_names_make_the_whole_module_count(scopes):
    text = OLD.replace("models.run(x)", "globals()['UNUSED']")
    assert of(scopes, text, text)
    assert not of(scopes, text, text.replace("UNUSED = 1", "UNUSED = 2"))


IMPORTS = {
    "its name": "from sizes import SIZE\n\ndef test_main(bench):\n    bench(SIZE)\n",
    "another name": "from sizes import SIZE as N\n\ndef test_main(bench):\n    bench(N)\n",
    "its file": "import sizes\n\ndef test_main(bench):\n    bench(sizes.SIZE.real)\n",
    "all names": "from sizes import *\n\ndef test_main(bench):\n    bench(SIZE)\n",
    "a relative import": "from . import sizes\n\ndef test_main(bench):\n    bench(sizes.SIZE)\n",
    "the test's own import": "def test_main(bench):\n    from sizes import SIZE\n    bench(SIZE)\n",
    "another helper": "from more import step\n\ndef test_main(bench):\n    bench(step)\n",
    "a fixture": "def test_main(bench, data):\n    bench(data)\n",
}
"""How a benchmark uses SIZE of sizes.py -> its file."""
HELPERS = {
    "benchmarks____init__": "",
    "benchmarks__more": "import sizes\n\ndef step():\n    return sizes.SIZE\n",
    "benchmarks__conftest": "import pytest\nimport sizes\n\n@pytest.fixture\ndef data():\n    return sizes.SIZE\n",
}


@pytest.mark.parametrize("text", IMPORTS.values(), ids=IMPORTS)
def test_a_definition_in_another_benchmark_file_counts_if_it_is_used(scopes, pytester, monkeypatch, text):
    monkeypatch.syspath_prepend(pytester.path / "benchmarks")
    for name in [name for name in sys.modules if name.partition(".")[0] == "benchmarks"]:  # of another test
        monkeypatch.delitem(sys.modules, name)
    sizes = "SIZE = {}\nOTHER = {}\n"
    first, same, other = (
        scopes(**HELPERS, benchmarks__test_main=text, benchmarks__sizes=sizes.format(*values))["test_main"]
        for values in ((1, 1), (1, 2), (2, 1))
    )
    assert first
    assert first == same != other


@pytest.mark.parametrize("place", ["benchmarks__sizes", "benchmarks__deeper", "benchmarks__conftest", "conftest"])
@pytest.mark.parametrize(
    "text",
    ["import {0}\n", "if True:\n    from {0} import OTHER\n", "try:\n    from {0} import *\nfinally:\n    pass\n"],
)
def test_what_an_import_of_a_benchmark_file_does_to_the_measured_code_counts(
    scopes, pytester, monkeypatch, place, text
):
    monkeypatch.syspath_prepend(pytester.path / "benchmarks")
    for name in [name for name in sys.modules if name.partition(".")[0] == "benchmarks"]:  # of another test
        monkeypatch.delitem(sys.modules, name)
    fixture = "import pytest\n\n@pytest.fixture\ndef bench():\n    return print\n"
    files = {
        "conftest": fixture, "benchmarks__conftest": "", "benchmarks__deeper": "",
        "benchmarks__sizes": "import deeper\nOTHER = 1\n",
        "benchmarks__test_main": text.format("sizes") + "\n\ndef test_main(bench):\n    bench(len)\n",
    }  # fmt: skip
    first, same, other = (
        scopes(**{**files, place: f"{files[place]}\nimport models\nmodels.SIZE = {size}\nUNUSED = {unused}\n"})[
            "test_main"
        ]
        for size, unused in ((1, 1), (1, 2), (2, 1))
    )
    assert first
    assert first == same != other


def test_a_function_of_a_benchmark_file_does_not_count_if_only_another_function_imports_it(
    scopes, pytester, monkeypatch
):
    monkeypatch.syspath_prepend(pytester.path / "benchmarks")
    test = "def other():\n    import sizes\n\ndef test_main(bench):\n    bench(len)\n"
    first, second = (
        scopes(benchmarks__test_main=test, benchmarks__sizes=f"import models\nmodels.SIZE = {n}\n")["test_main"]
        for n in (1, 2)
    )
    assert first == second != ""


def test_a_definition_in_the_measured_code_does_not_count(scopes):
    test = "from models import SIZE\n\ndef test_main(bench):\n    bench(SIZE)\n"
    first, second = (scopes(models=f"SIZE = {n}\n", benchmarks__test_main=test)["test_main"] for n in (1, 2))
    assert first == second != ""
