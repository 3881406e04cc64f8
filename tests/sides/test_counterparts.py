"""Match the cases of another source tree with those of this run."""

from tfbench.model import Case
from tfbench.sides.counterparts import Benchmark, Counterparts


def case(name, source):
    return Case(name, "w", name.partition("[")[0], source=source, scope=source)


def counterparts(before, *now):
    return Counterparts(
        {name: Benchmark(source, source) for name, source in before.items()},
        [case(name, source) for name, source in now],
    )


def test_the_same_name_is_the_same_case_whatever_its_code():
    found = counterparts({"a.py::test_x": "1"}, ("a.py::test_x", "2"))
    assert found.of(case("a.py::test_x", "2")).name == "a.py::test_x"
    assert found.gone({"a.py::test_x"}) == []


def test_the_same_code_in_the_same_variant_is_renamed():
    found = counterparts({"a.py::x[p=1]": "1", "a.py::x[p=2]": "1"}, ("a.py::y[p=1]", "1"), ("a.py::y[p=2]", "1"))
    assert found.of(case("a.py::y[p=2]", "1")).name == "a.py::x[p=2]"
    assert found.gone({"a.py::y[p=1]", "a.py::y[p=2]"}) == []


def test_a_benchmark_that_only_moved_is_preferred_to_one_with_the_same_code():
    found = counterparts({"a.py::x": "1", "a.py::z": "1"}, ("b.py::x", "1"))
    assert found.of(case("b.py::x", "1")).name == "a.py::x"
    assert [one.name for one in found.gone({"b.py::x"})] == ["a.py::z"]


def test_ambiguous_matches_are_left_out():
    one_of_two = counterparts({"a.py::x": "1", "a.py::z": "1"}, ("a.py::y", "1"))
    assert one_of_two.of(case("a.py::y", "1")) is None
    two_of_one = counterparts({"a.py::x": "1"}, ("a.py::y", "1"), ("a.py::z", "1"))
    assert two_of_one.of(case("a.py::y", "1")) is None
    unknown = counterparts({"a.py::x": ""}, ("a.py::y", ""))
    assert unknown.of(case("a.py::y", "")) is None


def test_the_same_code_that_uses_something_else_is_another_case():
    before = {"a.py::test_main": Benchmark("1", "old")}
    now = Case("b.py::test_main", "w", "b.py::test_main", source="1", scope="new")
    found = Counterparts(before, [now])
    assert found.of(now) is None
    assert [one.name for one in found.gone({now.name})] == ["a.py::test_main"]
