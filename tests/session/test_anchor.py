"""An anchor is the same as long as its code and environment are, on any machine."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.storage.test_baselines import BASELINE, CONTEXT
from tfbench.errors import UsageError
from tfbench.session import strategies
from tfbench.session.strategies import anchor_of, check_anchor
from tfbench.sides.spec import Side
from tfbench.sides.yardstick import JudgedTree


def judged(tree):
    """The tree of this hash, with the yardstick in it."""
    return JudgedTree(Path("/x"), ("/home", "/x"), Path("/y"), ("/home", "/y"), "", (), tree)


SIDE = Side("baseline", "/bin/python", Path("/cache/trees/abc/b"), "git:v1.0", judged=judged("abc"))
HERE = CONTEXT.environment


def test_another_machine_checkout_or_commit_of_the_contender_leaves_the_anchor():
    first = anchor_of(SIDE, HERE, None)
    assert first.label == "git:v1.0"
    elsewhere = replace(SIDE, executable="/other", root=Path("/o/abc"), tree_redirect=("/h", "/o/abc"))
    environment = replace(HERE, commit="1", dirty=True, cpus=(9,), machine={"processor": "other"}, executable="/other")
    assert anchor_of(elsewhere, environment, None) == first


def test_another_tree_python_package_or_setting_is_another_anchor():
    sides = [SIDE, replace(SIDE, judged=judged("def")), replace(SIDE, judged=None)]
    environments = [
        replace(HERE, python="3.99.1"), replace(HERE, packages={"tensorflow": "2.20.0"}), replace(HERE, settings={"TF_X": "1"}),
    ]  # fmt: skip
    keys = [anchor_of(side, HERE, None).key for side in sides] + [
        anchor_of(SIDE, one, None).key for one in environments
    ]
    assert len(set(keys)) == len(keys)


def test_a_saved_baseline_is_the_same_anchor_whatever_it_is_recreated_from():
    saved = replace(BASELINE, name="v1", saved="2026-01-01T00:00:00+00:00")
    first = anchor_of(SIDE, HERE, saved)
    assert first.label == "baseline 'v1' of 2026-01-01T00:00:00+00:00"
    assert anchor_of(replace(SIDE, judged=None), replace(HERE, python="3.99"), saved) == first


@pytest.mark.parametrize(
    ("against", "refused"),
    [
        ("self", "a race against self has no anchor"),
        ("env:X=1+tensorflow", "tensorflow is another version tomorrow; pin the anchor, such as tensorflow==VERSION"),
        ("2.20.0+keras", "keras is another version tomorrow"),
        ("git:main", "git:main is no tag or commit"),
        ("git:v1.0", ""),
        ("self + env:X=1", ""),
        ("tensorflow==2.20.0", ""),
        ("", ""),
    ],
)
def test_an_anchor_that_moves_is_refused(monkeypatch, against, refused):
    monkeypatch.setattr(strategies, "is_pinned", lambda root, revision: revision == "v1.0")
    with pytest.raises(UsageError, match=f"^--history: {refused}") if refused else nullcontext():
        check_anchor(SimpleNamespace(history="h", against=against, root=Path()))
    check_anchor(SimpleNamespace(history="", against=against, root=Path()))
