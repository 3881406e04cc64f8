"""Match the cases of another source tree with those of this run."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tfbench.errors import SideError
from tfbench.fs import scratch_dir
from tfbench.model import Case
from tfbench.sides.counterparts import Counterparts, Listing, Selection, benchmarks_of, collect
from tfbench.sides.spec import Side


def case(name, source):
    return Case(name, "w", name.partition("[")[0], source=source)


def listing(sources, **more):
    return Listing({name: case(name, source) for name, source in sources.items()}, **more)


def counterparts(before, *now):
    return Counterparts(listing(before), [case(name, source) for name, source in now])


def names(cases):
    return [one.name for one in cases]


def test_the_same_name_is_the_same_case_whatever_its_code():
    found = counterparts({"a.py::test_x": "1"}, ("a.py::test_x", "2"))
    assert found.has(case("a.py::test_x", "2"))
    assert found.gone({"a.py::test_x"}) == []


def test_a_case_of_the_same_code_in_the_same_variant_is_not_gone_but_renamed():
    found = counterparts({"a.py::x[p=1]": "1", "a.py::x[p=2]": "1"}, ("a.py::y[p=1]", "1"), ("a.py::y[p=2]", "1"))
    assert found.renamed == {"a.py::y[p=1]": "a.py::x[p=1]", "a.py::y[p=2]": "a.py::x[p=2]"}
    assert found.gone({"a.py::y[p=1]", "a.py::y[p=2]"}) == []
    assert found.has(case("a.py::y[p=2]", "1"))


def test_each_case_that_is_gone_needs_a_new_one_of_its_own_to_be_renamed():
    one_for_two = counterparts({"a.py::x": "1", "a.py::z": "1"}, ("a.py::y", "1"))
    assert names(one_for_two.gone({"a.py::y"})) == ["a.py::x", "a.py::z"]
    other_code = counterparts({"a.py::x": "1"}, ("a.py::y", "2"))
    assert names(other_code.gone({"a.py::y"})) == ["a.py::x"]
    unknown = counterparts({"a.py::x": ""}, ("a.py::y", ""))
    assert names(unknown.gone({"a.py::y"})) == ["a.py::x"]
    two_for_one = counterparts({"a.py::x": "1"}, ("a.py::y", "1"), ("a.py::z", "1"))
    assert two_for_one.gone({"a.py::y", "a.py::z"}) == []


def test_a_tree_runs_what_it_selects_and_does_not_skip():
    given = {"a.py::x": "1", "a.py::skipped": "2", "a.py::slow": "3"}
    kinds = {"skipped": frozenset({"a.py::skipped"}), "deselected": frozenset({"a.py::slow"})}
    found = Counterparts(listing(given, **kinds), [])
    assert [one.name for one in found.gone(())] == ["a.py::x"]
    assert [found.runs(case(name, "")) for name in given] == [True, False, False]


def test_a_case_that_is_deselected_here_is_not_renamed():
    before = listing({"a.py::x": "1"})
    now = [case("a.py::y", "1")]
    assert Counterparts(before, now).gone({"a.py::y"}) == []
    found = Counterparts(before, now, {"a.py::x", "a.py::y"})
    assert [one.name for one in found.gone({"a.py::y"})] == ["a.py::x"]


def test_a_counterpart_has_the_thresholds_of_its_own_tree():
    own = (("minimum_effect", 0.05), ("tolerance", 0.1))
    there = replace(case("a.py::x", "1"), thresholds=own)
    found = Counterparts(Listing({"a.py::x": there, "a.py::y": case("a.py::y", "2")}), [])
    assert found.of(case("a.py::x", "1")).thresholds == own
    assert found.of(replace(case("a.py::y", "2"), thresholds=own)).thresholds == ()
    renamed = Counterparts(Listing({"a.py::x": there}), [case("a.py::y", "1")])
    assert renamed.of(case("a.py::y", "1")).thresholds == own


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


def test_a_tree_may_have_the_cases_of_a_file_that_cannot_be_imported_there():
    found = Counterparts(listing({"b.py::z": "3"}, broken=("a.py", "folder")), [case("a.py::x", "1")])
    assert [found.has(case(name, "1")) for name in ("a.py::x", "folder/c.py::x", "c.py::x")] == [True, True, False]
    assert found.runs(case("a.py::x", "1"))
    assert names(found.gone([])) == ["b.py::z"]


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


def test_a_killed_collection_is_named(tmp_path):
    with pytest.raises(SideError, match="pytest was killed by signal 9 while it collected its benchmarks"):
        collect(["sh", "-c", "kill -9 $$"], {}, tmp_path, seconds=60)


def test_the_folder_of_a_collection_is_removed_with_those_of_killed_processes(tmp_path):
    program = "import json, sys; asked = json.loads(sys.argv[1])['answer']; json.dump({'at': asked}, open(asked, 'w'))"
    at = collect([sys.executable, "-c", program], {}, tmp_path, seconds=60)["at"]
    assert Path(at).is_relative_to(scratch_dir())


def test_a_case_whose_function_is_still_in_its_file_is_not_renamed(tmp_path):
    """The change leaves its file out of `tfbench_paths`, and adds a benchmark of the same text."""
    (tmp_path / "test_old.py").write_text("def test_slow(bench):\n    bench(step)\n")
    before = listing({"test_old.py::test_slow": "text"})
    now = [replace(Case.named("test_new.py::test_fast"), source="text")]
    left_out = Counterparts(before, now, root=tmp_path).gone(())
    assert [case.name for case in left_out] == ["test_old.py::test_slow"]
    (tmp_path / "test_old.py").unlink()
    assert Counterparts(before, now, root=tmp_path).gone(()) == []
    (tmp_path / "test_old.py").write_text("class Mine(Benchmark):\n    def benchmark_slow(self): ...\n")
    of_a_class = listing({"test_old.py::Mine.benchmark_slow": "text"})
    assert len(Counterparts(of_a_class, now, root=tmp_path).gone(())) == 1
