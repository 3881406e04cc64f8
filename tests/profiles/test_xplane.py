"""XPlane files, and arithmetic of spans."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.profiles import Built
from tfbench.errors import ProfileError
from tfbench.profiles.xplane import Event, length, load, nested, steps_of

SPANS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 10)).map(lambda one: (one[0], one[0] + one[1])))


@given(SPANS)
def test_each_moment_of_spans_counts_once(spans):
    moments = {moment for start, end in spans for moment in range(start, end)}
    assert length(spans) == pytest.approx(len(moments) * 1e-12)


def event(name, start, end):
    return Event(name, "", start, end, {})


def test_events_know_their_parents():
    outer, inner, beside, point = event("a", 0, 10), event("b", 2, 8), event("c", 8, 9), event("d", 3, 3)
    events = nested([point, beside, inner, outer])
    assert events == [outer, inner, point, beside]
    assert [one.parent for one in events] == [None, outer, inner, outer]
    assert list(point.above) == [inner, outer]


def test_a_file_is_read(tmp_path):
    built = Built()
    plane, line = built.steps(3)
    built.event(plane, line, "MatMul:MatMul", 100, 20, kind="MatMul", shape="[2,2]")
    space = load(built.write(tmp_path))
    op = next(one for one in space.on_host if one.kind == "MatMul")
    assert (op.start, op.end, op.stats) == (100_000_000, 120_000_000, {"shape": "[2,2]"})
    assert op.parent.name == "step"


def test_the_first_of_several_steps_is_left_out(tmp_path):
    built = Built()
    built.steps(3)
    assert [step.stats["step_num"] for step in steps_of(load(built.write(tmp_path)))] == [1, 2]


def test_a_profile_without_step_markers_says_how_to_add_them(tmp_path):
    built = Built()
    plane = built.plane("/host:CPU")
    built.event(plane, built.line(plane, "python"), "MatMul:MatMul", 0, 1)
    with pytest.raises(ProfileError, match=r"no step marker: put each step.*Trace\('step', step_num=n, _r=1\)"):
        steps_of(load(built.write(tmp_path)))


def test_an_incomplete_file_gives_one_line(tmp_path):
    built = Built()
    built.steps()
    path = built.write(tmp_path)
    content = path.read_bytes()
    for cut, words in ((len(content) - 5, "was cut short, or is damaged; profile again"), (0, "is empty")):
        path.write_bytes(content[:cut])
        with pytest.raises(ProfileError, match=words):
            load(path)
    path.write_bytes(b"\xff" * 50)
    with pytest.raises(ProfileError, match="is no XPlane file; name another folder"):
        load(path)
    with pytest.raises(ProfileError, match="cannot be read: No such file"):
        load(tmp_path / "none.xplane.pb")
    path.write_bytes(Built().space.SerializeToString())
    with pytest.raises(ProfileError, match="no plane"):
        load(path)
