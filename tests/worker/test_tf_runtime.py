"""The timer of TensorFlow's import, a Keras that cannot be loaded, and the numbers of a result."""

import ast
import dataclasses
import enum
import sys
from decimal import Decimal
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

from tests.fakes.alone import run_alone
from tfbench.worker import tf_runtime


def test_a_version_that_denies_onednn_says_nothing_about_it(monkeypatch):
    monkeypatch.setattr(tf_runtime, "tensorflow", lambda: SimpleNamespace(__version__="2.10.1"))
    assert "oneDNN" not in tf_runtime.defaults()


@pytest.mark.parametrize("error", [ImportError, AttributeError, RecursionError])
def test_a_keras_that_cannot_be_loaded_is_left_out(monkeypatch, error):
    class TensorFlow:
        function = None

        @property
        def keras(self):
            raise error

    monkeypatch.setitem(sys.modules, "tensorflow", TensorFlow())
    assert tf_runtime.keras() is None
    tf_runtime.keras()


@dataclasses.dataclass
class Scored:
    logits: object
    before: object = None


class Plain:
    def __init__(self, value):
        self.value, self._cache, self.call = value, object(), print


class Callable(Plain):
    def __call__(self):
        return self.value


class Slotted:
    """In place of a class of attrs."""

    __slots__ = ("value",)
    __attrs_attrs__ = (SimpleNamespace(name="value"),)

    def __init__(self, value):
        self.value = value


class Level(enum.Enum):
    LOW, HIGH = 1, 2


class History:
    """In place of Keras's, which `fit` returns."""

    def __init__(self, loss):
        self.history, self.params = {"loss": [loss]}, {"epochs": 1}


RESULTS = {
    "a data class": lambda n: {"a": Scored(np.array([1.0, n]))},
    "what fit returns": lambda n: History(float(n)),
    "attributes": lambda n: Plain({"a": Plain(n)}),
    "a namespace": lambda n: [SimpleNamespace(a=n)],
    "a class of attrs": Slotted,
    "a member of an enumeration": Level,
    "a set": lambda n: {3, n},
    "a frozen set": lambda n: [frozenset([n])],
    "another mask": lambda n: np.ma.masked_array([1.0, 2.0], [n == 1, n == 2]),
    "numbers under the mask": lambda n: np.ma.masked_array([1.0, n], [True, False]),
    "named columns": lambda n: np.array([(1, n)], [("a", "i4"), ("b", "f4")]),
    "a time": lambda n: np.datetime64(n, "s"),
    "seconds": lambda n: np.array([n], "timedelta64[s]"),
    "a decimal": Decimal,
    "fractions": lambda n: [Fraction(n, 3)],
    "a large whole number": lambda n: [2**80 + n],
    "numbers as objects": lambda n: np.array([0.5, n], object),
}


@pytest.mark.parametrize("kind", RESULTS)
def test_every_kind_of_number_in_a_result_is_compared(kind):
    def told(n):
        return [(part.name, part.inside, part.array.tolist()) for part in tf_runtime.flattened(RESULTS[kind](n))]

    assert told(1) == told(1) != []
    assert told(1) != told(2)


def test_objects_without_data_of_their_own_are_left_out():
    assert tf_runtime.flattened([Callable(1), Plain(print), ast.Constant(3), np.random.default_rng(), Plain, sys]) == []


def test_what_is_under_a_mask_does_not_count_and_an_object_that_contains_itself_is_read_once():
    first, second = (tf_runtime.flattened(np.ma.masked_array([1.0, n], [False, True])) for n in (1, 2))
    assert [part.array.tolist() for part in first] == [part.array.tolist() for part in second]
    scored = Scored(np.ones(2))
    scored.before = [scored, {"score": 3}]
    assert [part.name for part in tf_runtime.flattened(scored)] == [".logits", ".before[1]['score']"]


@pytest.mark.parametrize(
    ("module", "seeded"),
    [
        ("", (False, False)),
        ("random.seed(1)", (True, False)),
        ("np.random.seed(1)", (False, True)),
        ("np.random.set_bit_generator(np.random.PCG64(1))", (False, True)),
    ],
)
def test_forked_processes_draw_the_same_numbers_if_a_module_has_seeded_a_generator(module, seeded):
    begin = "import random, numpy as np; from tfbench.worker.tf_runtime import Seeds; seeds = Seeds()\n"
    end = """
import os
seed = random.seed
seeds.imported()
def draws(draw):
    answer, question = os.pipe()
    for _ in range(2):
        if os.fork() == 0:
            seeds.fork()
            os.write(question, f"{draw()} ".encode())
            os._exit(0)
        os.wait()
    return len(set(os.read(answer, 1000).split())) == 1
print(draws(random.random), draws(np.random.rand), seed is random.seed)
"""
    assert run_alone(begin + module + end).split() == [*(str(one) for one in seeded), "False"]
