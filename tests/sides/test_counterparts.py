"""Match the cases of another source tree with those of this run."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tfbench.errors import SideError
from tfbench.fs import scratch_dir
from tfbench.model import Case
from tfbench.sides.counterparts import (
    Benchmark,
    Counterparts,
    Listing,
    Selection,
    benchmarks_of,
    collect,
    moved_files,
    removed_files,
)
from tfbench.sides.spec import Side


def case(name, source):
    return Case(name, "w", name.partition("[")[0], source=source, scope=source)


def counterparts(before, *now):
    return Counterparts(
        Listing({name: Benchmark(source, source) for name, source in before.items()}),
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
    found = Counterparts(Listing(before), [now])
    assert found.of(now) is None
    assert [one.name for one in found.gone({now.name})] == ["a.py::test_main"]


def test_a_benchmark_whose_own_code_is_another_one_is_told():
    found = counterparts(
        {"a.py::x": "1", "a.py::y": "1", "a.py::z": ""}, ("a.py::x", "2"), ("a.py::y", "1"), ("a.py::z", "1")
    )
    known = [case("a.py::x", "2"), case("a.py::y", "1"), case("a.py::z", "1"), case("a.py::new", "3")]
    assert [found.differs(one) for one in known] == [True, False, False, False]


def test_a_tree_runs_what_it_selects_and_does_not_skip():
    given = {"a.py::x": Benchmark("1"), "a.py::skipped": Benchmark("2", skipped=True),
             "a.py::slow": Benchmark("3", selected=False)}  # fmt: skip
    found = Counterparts(Listing(given), [])
    assert [one.name for one in found.gone(())] == ["a.py::x"]
    assert [found.runs(case(name, "")) for name in given] == [True, False, False]
    assert found.of(case("a.py::slow", "3")).name == "a.py::slow"  # it races, if this run selects it


def test_a_case_that_is_deselected_here_is_not_renamed():
    before = {"a.py::x": Benchmark("1", "1")}
    now = [case("a.py::y", "1")]
    assert Counterparts(Listing(before), now).of(now[0]).name == "a.py::x"
    found = Counterparts(Listing(before), now, {"a.py::x", "a.py::y"})
    assert found.of(now[0]) is None
    assert [one.name for one in found.gone({"a.py::y"})] == ["a.py::x"]


def test_a_counterpart_has_the_thresholds_of_its_own_tree():
    own = (("minimum_effect", 0.05), ("tolerance", 0.1))
    found = Counterparts(Listing({"a.py::x": Benchmark("1", thresholds=own), "a.py::y": Benchmark("2")}), [])
    assert found.of(case("a.py::x", "1")).thresholds == own
    assert found.of(replace(case("a.py::y", "2"), thresholds=own)).thresholds == ()


def test_a_selection_has_the_cases_below_its_paths():
    names = ["b/a.py::x", "b/a.py::x[n=1]", "b/a.py::xy", "b/a.py::C::m", "b/c/d.py::x", "bc/a.py::x"]

    def selected(*paths, ignored=()):
        return [name for name in names if Selection(paths=paths, ignored=ignored).has(name)]

    assert selected() == selected(".") == names
    assert selected("b") == names[:5]
    assert selected("b/a.py") == names[:4]
    assert selected("b/a.py::x") == names[:2]
    assert selected("b/a.py::x[n=1]", "b/a.py::C", "bc") == [names[1], names[3], names[5]]
    assert selected("b", ignored=("b/c", "b/a.py")) == []


def test_a_benchmark_of_which_only_the_function_is_known_differs_with_its_function():
    before = {"a.py::x": Benchmark("1"), "a.py::y": Benchmark("1", "scope")}
    now = [Case(name, "w", name, source="2") for name in before]
    assert [Counterparts(Listing(before), now).differs(one) for one in now] == [True, True]
    assert not Counterparts(Listing(before), now).differs(replace(now[0], source="1"))


def test_files_that_are_gone_and_those_whose_cases_lie_elsewhere_are_found(tmp_path):
    before, now = tmp_path / "before", tmp_path / "now"
    for tree, names in ((before, ("a.py", "b/c.py", "kept.py", "conftest.py", "other.py")), (now, ("kept.py", "d.py"))):
        for name in names:
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_text("" if name == "other.py" else "def test_x(bench): ...")
    assert removed_files(before, now) == ["a.py", "b/c.py"]
    names = ["a.py::test_x[n=1]", "a.py::test_y", "b/c.py::test_z", "kept.py::test_w"]
    assert moved_files(names, ["d.py::test_x[n=1]", "d.py::test_w", "d.py::other"], now) == {"a.py": "d.py"}
    assert moved_files(names, names, now) == {}


def test_cases_of_a_file_that_cannot_be_imported_there_are_raced():
    found = Counterparts(Listing({"b.py::z": Benchmark("3", "3")}, ("a.py", "folder")), [case("a.py::x", "1")])
    assert found.of(case("a.py::x", "1")).name == "a.py::x"
    assert found.runs(case("a.py::x", "1"))
    assert not found.differs(case("a.py::x", "1"))
    assert found.of(case("folder/c.py::x", "2")).name == "folder/c.py::x"
    assert found.of(case("c.py::x", "2")) is None
    assert [gone.name for gone in found.gone([])] == ["b.py::z"]


def test_the_variables_of_a_hook_of_git_reach_no_listing(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_DIR", "/elsewhere/.git")
    program = """
import json, os, sys
with open(json.loads(sys.argv[1])["answer"], "w") as file:
    json.dump({"GIT_DIR": os.environ.get("GIT_DIR")}, file)
"""
    assert collect([sys.executable, "-c", program], {}, tmp_path, seconds=60) == {"GIT_DIR": None}


@pytest.mark.parametrize("path", ["..", "../other", "../other/a.py::test_x"])
def test_a_selection_outside_of_the_root_is_refused(path):
    side = Side("baseline", "python", Path("/"), "git:HEAD")
    with pytest.raises(SideError, match=f"git:HEAD: {path} is outside of pytest's root.*--rootdir"):
        benchmarks_of(side, Selection(paths=("a.py", path)), ["false"], 1.0)


def test_a_file_of_which_a_listing_says_nothing_is_unseen(tmp_path):
    for name in ("seen.py", "broken.py", "other.py"):
        (tmp_path / name).touch()
    listing = Listing(broken=("broken.py",), seen=frozenset(["seen.py"]))
    assert listing.unseen(["seen.py", "broken.py", "other.py", "other.py", "absent.py"], tmp_path) == ("other.py",)


def test_a_killed_collection_is_named(tmp_path):
    with pytest.raises(SideError, match="pytest was killed by signal 9 while it collected its benchmarks"):
        collect(["sh", "-c", "kill -9 $$"], {}, tmp_path, seconds=60)


def test_the_folder_of_a_collection_is_removed_with_those_of_killed_processes(tmp_path):
    program = "import json, sys; asked = json.loads(sys.argv[1])['answer']; json.dump({'at': asked}, open(asked, 'w'))"
    at = collect([sys.executable, "-c", program], {}, tmp_path, seconds=60)["at"]
    assert Path(at).is_relative_to(scratch_dir())
