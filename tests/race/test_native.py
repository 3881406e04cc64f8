"""Which native code two sides have loaded, how they found the cache, and whether their times say something about their trees."""

from dataclasses import replace
from pathlib import Path

import pytest

from tfbench.model import NATIVE, Run
from tfbench.race.confirmed import unlike_caches, unlike_native_code
from tfbench.sides.spec import Side

HERE = Side("contender", "python", Path("/work"))
THERE = Side("baseline", "python", Path("/trees/a"), "git:HEAD", tree_redirect=("/work", "/trees/a"))


def unlike(before, now, baseline=THERE):
    runs = ([Run((1.0,), 1, {NATIVE: facts} if facts else {})] for facts in (before, now))
    reason = unlike_native_code((baseline, HERE), list(runs))
    return reason.message if reason else ""


def test_sides_without_native_code_or_with_the_same_are_alike():
    assert unlike({}, {}) == ""
    assert unlike({"own": ["ops/fast.so"]}, {"own": ["ops/fast.so"]}) == ""


def test_a_library_of_the_working_tree_in_the_other_tree_is_named_with_the_fix():
    found = unlike({"foreign": ["ops/fast.so"]}, {"own": ["ops/fast.so"]})
    assert found.startswith("the baseline side (git:HEAD) has loaded ops/fast.so of the working tree")
    assert "outside of the checkout" in found


def test_an_extension_that_an_import_compiled_outside_of_both_trees_is_named_with_the_fix():
    compiled = {"compiled": ["/home/me/.pyxbld/fast.so"]}
    found = unlike(compiled, compiled)
    assert found.startswith(
        "on the baseline side, an import has compiled /home/me/.pyxbld/fast.so outside of the source"
    )
    assert "pyximport.install(build_dir=" in found
    assert unlike({}, compiled).startswith("on the contender side, an import has compiled")
    other = replace(HERE, name="baseline", executable="python3.10", spec="python:3.10")
    assert unlike(compiled, compiled, other) == ""  # both sides have the same source tree


@pytest.mark.parametrize(
    ("before", "now", "side"), [((), ("x/_fast.so",), "contender"), (("x/_fast.so",), (), "baseline")]
)
def test_a_library_that_one_side_alone_has_loaded_is_named_with_the_fix(before, now, side):
    found = unlike({"own": before}, {"own": now})
    assert found.startswith(f"only the {side} side has loaded x/_fast.so")
    assert "--against python:PATH" in found


def test_builds_of_one_extension_for_two_interpreters_are_the_same_extension():
    before, now = ({"own": [f"x/_fast.cpython-{python}-x86_64-linux-gnu.so"]} for python in (310, 312))
    other = replace(HERE, name="baseline", executable="python3.10", spec="python:3.10")
    assert unlike(before, now, other) == ""
    assert "only the contender" in unlike({}, now, other)


def test_a_setting_may_select_other_libraries_of_one_tree():
    assert unlike({}, {"own": ["x/_fast.so"]}, replace(HERE, name="baseline", spec="env:FAST=0")) == ""


@pytest.mark.parametrize(("before", "now"), [("cold", "warm"), ("warm", "cold"), ("unknown", "cold"), ("", "cold")])
def test_sides_whose_calls_found_the_cache_in_another_state_are_not_compared(before, now):
    runs = [[Run((1.0,), 1, {"cache": state} if state else {})] for state in (before, now)]
    assert unlike_caches(runs[0], runs[0]) is None
    found = unlike_caches(*runs)
    assert found.code == "other-cache"
    assert f"a {before or 'primed'} cache, this side with a {now} one" in found.message
