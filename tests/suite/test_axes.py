"""Axes, variants and their ids."""

import pytest

from tfbench import Axis, Level, across
from tfbench.errors import DeclarationError

PRECISION = Axis("precision", Level("float32", cast=lambda x: x), Level("float16", cast=lambda x: x / 2))
COMPILER = Axis("compiler", Level("none"), Level("xla", env={"XLA_FLAGS": "-x"}))


def variants(*axes):
    return [parameter.values[0] for parameter in across(*axes).args[1]]


def ids(*axes):
    return [parameter.id for parameter in across(*axes).args[1]]


def test_ids_do_not_depend_on_the_order_of_the_axes():
    assert sorted(ids(PRECISION, COMPILER)) == sorted(ids(COMPILER, PRECISION))
    assert ids(PRECISION, COMPILER)[0] == "compiler=none,precision=float32"


def test_the_first_level_of_each_axis_makes_the_reference():
    assert [variant.reference for variant in variants(PRECISION, COMPILER)] == [True, False, False, False]


def test_the_helpers_of_a_level_are_methods_of_the_variant():
    last = variants(PRECISION, COMPILER)[-1]
    assert last.cast(4) == 2
    assert last["compiler"] == "xla"
    assert last.env == {"XLA_FLAGS": "-x"}
    with pytest.raises(AttributeError, match="add the axis that provides it"):
        last.compile(3)
    with pytest.raises(DeclarationError, match="layout"):
        last["layout"]


def test_entering_a_variant_runs_its_setups_or_returns_why_a_level_cannot_run():
    done = []
    axis = Axis("a", Level("ok", setup=lambda: done.append("ok")), Level("no", requires=lambda: "no GPU"))
    assert variants(axis)[0].enter() is None
    assert done == ["ok"]
    assert variants(axis)[1].enter() == "no GPU"


def test_an_axis_can_be_restricted_to_some_levels():
    assert ids(PRECISION.only("float16")) == ["precision=float16"]
    with pytest.raises(DeclarationError, match="no level 'int8'"):
        PRECISION.only("int8")


@pytest.mark.parametrize(
    ("declare", "what"),
    [
        (lambda: Axis("a"), "no level"),
        (lambda: Axis("a", Level("x"), Level("x")), "twice"),
        (lambda: Level("x=y"), "letters"),
        (lambda: Level("x", cast=3), "must be a function"),
        (lambda: across(), "needs an axis"),
        (lambda: across(PRECISION, PRECISION), "twice"),
        (lambda: across("precision"), "not an Axis"),
        (lambda: across(PRECISION, Axis("b", Level("x", cast=abs))), "both provide 'cast'"),
        (lambda: across(COMPILER, Axis("b", Level("x", env={"XLA_FLAGS": ""}))), "both provide 'XLA_FLAGS'"),
    ],
)
def test_an_impossible_declaration_is_refused_with_its_reason(declare, what):
    with pytest.raises(DeclarationError, match=what):
        declare()
