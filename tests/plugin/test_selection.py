"""Which of pytest's items are cases, without a run."""

import re
import unittest
from types import SimpleNamespace

import pytest

from tfbench.errors import DeclarationError
from tfbench.model import Case
from tfbench.plugin.cases import by_environment, case_of, constructor_of, misnamed, places
from tfbench.policy import Policy
from tfbench.untrusted import is_case


class WithConstructor:
    def __init__(self):
        self.x = 1

    def test_x(self, benchmark): ...


class WithNew:
    def __new__(cls):
        raise ValueError

    def test_x(self, bench): ...


class Helper:
    def __init__(self, x): ...

    def test_of_something_else(self, x): ...


class Plain:
    def test_x(self, benchmark): ...


class OfUnittest(unittest.TestCase):
    def test_x(self): ...


@pytest.mark.parametrize(
    ("kind", "constructor"),
    [(WithConstructor, "__init__"), (WithNew, "__new__"), (Helper, ""), (Plain, ""), (OfUnittest, "")],
)
def test_a_class_with_benchmarks_and_a_constructor_is_reported(request, kind, constructor):
    collector = pytest.Class.from_parent(request.node.parent, name=kind.__name__, obj=kind)
    assert (constructor in constructor_of(collector)) if constructor else not constructor_of(collector)


def test_the_place_of_a_case_counts_the_cases_of_its_function():
    names = ["t.py::test_a[x]", "t.py::test_b", "t.py::test_a[y]"]
    found = places([SimpleNamespace(nodeid=name) for name in names])
    assert found == {"t.py::test_a[x]": (0, 2), "t.py::test_b": (0, 1), "t.py::test_a[y]": (1, 2)}


def test_cases_of_one_start_up_environment_come_together():
    envs = {"t.py::a": (), "t.py::b": (("X", "1"),), "t.py::plain": (), "t.py::c": (), "t.py::d": (("X", "1"),)}
    made = {name: Case(name, "w", name, env=env) for name, env in envs.items() if "plain" not in name}
    found = by_environment([SimpleNamespace(nodeid=name) for name in envs], made)
    assert [item.nodeid for item in found] == ["t.py::a", "t.py::plain", "t.py::c", "t.py::b", "t.py::d"]


@pytest.mark.parametrize("level", ["y" * 2000, "a\nb", "a\tb"])
def test_a_name_that_no_file_can_have_is_refused_with_the_fix(level):
    name = f"t.py::test_a[{level}]"
    with pytest.raises(
        DeclarationError, match=r"at most 2,000 characters, .*; give its parameters shorter ids"
    ) as caught:
        case_of(SimpleNamespace(nodeid=name, originalname="test_a", callspec=None), (0, 1), Policy())
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("test_[x].py", "has '['"),
        ("a[1]/test_x.py", "has '['"),
        ("test_a::b.py", "has '::'"),
        ("test_\n.py", "has '\\n'"),
        ("test_<b>.py", "has '<'"),
        ("test_`.py", "has '`'"),
        ("test_\u202e.py", "has '\\u202e'"),
        ("test_\udce9.py", "has '\\udce9'"),
        ("test_größer (1) = a,b'c%&.py", ""),
    ],
)
def test_a_file_whose_name_no_case_can_have_is_refused_with_the_fix(request, name, fault):
    found = misnamed(request.config.rootpath / "benchmarks" / name, request.node.parent)
    assert (found is None) == (not fault)
    if found is not None:
        with pytest.raises(pytest.Collector.CollectError, match=re.escape(f"its name {fault}")) as refused:
            found.collect()
        assert str(refused.value).endswith("; rename the file or its folder")
        assert is_case(found.nodeid)
