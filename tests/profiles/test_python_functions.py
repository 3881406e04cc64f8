"""Sampled Python profiles of two sides."""

from tfbench.profiles.attribution import HALF, describe, grown, memory_lines, must_show
from tfbench.protocol import Sampled

MIB = 1 << 20


def profile(seconds, functions, samples=1000, memory=None):
    counts = {
        name: (round(share * samples), round(share * samples) * depth) for name, (share, depth) in functions.items()
    }
    return Sampled(10, 10 * seconds, samples, counts, memory or {})


def test_the_deepest_function_with_half_of_the_slowdown_is_the_cause():
    before = profile(0.001, {"a.step": (1, 0), "a.trace": (0.1, 3), "a.other": (0.5, 5)})
    now = profile(0.004, {"a.step": (1, 0), "a.call": (0.9, 1), "a.trace": (0.8, 3), "a.part": (0.2, 9)})
    cause = grown(before, now)
    assert cause.function == "a.trace"
    assert abs(cause.now - 0.0032) < 1e-9
    text = (
        "Python: a.trace takes 3.20 ms of a sampled call of 4.00 ms, and 100 µs of 1.00 ms before; 100% of its slowdown"
    )
    assert cause.share > 1  # other functions became faster
    assert describe(cause) == text
    assert describe(cause, raced=0.058) == f"{text} (+300%, raced: +5.8%)"


def test_a_function_whose_module_moved_is_the_same():
    before = profile(0.001, {"keras.layers.call": (0.9, 1), "keras.layers.deep": (0.1, 2)})
    now = profile(0.003, {"keras.src.layers.call": (0.9, 1), "keras.src.layers.deep": (0.2, 2)})
    assert grown(before, now).function == "keras.layers.call"
    assert abs(grown(before, now).before - 0.0009) < 1e-9


def test_generated_functions_few_samples_and_a_speedup_have_no_cause():
    slow = profile(0.003, {"__autograph_generated_file1.tf__step": (1, 2)})
    assert grown(profile(0.001, {}), slow) is None
    assert grown(profile(0.001, {}), profile(0.003, {"a.b": (1, 2)}, samples=20)) is None
    assert grown(profile(0.003, {}), profile(0.001, {"a.b": (1, 2)})) is None


def test_samples_without_the_raced_slowdown_do_not_explain_it():
    before, now = profile(0.0423, {"a.b": (0.9, 2)}), profile(0.0426, {"a.b": (0.9, 2)})
    assert grown(before, now) is not None
    assert grown(before, now, enough=0.5 * 3.1) is None
    assert grown(before, profile(0.06, {"a.b": (0.9, 2)}), enough=0.5 * 0.7) is not None


def test_a_very_large_slowdown_has_a_cause_although_sampling_slows_the_fast_side_down():
    before, now = profile(0.00012, {"a.step": (1, 0)}), profile(0.0171, {"a.step": (1, 0), "a.lookup": (0.99, 1)})
    assert 342 * HALF > 0.0171 / 0.00012
    assert grown(before, now, must_show(341.0)).function == "a.lookup"
    assert must_show(0.2) == 0.1
    assert must_show(None) == 0


def test_the_keeper_of_memory_that_grew_most_comes_first():
    before = profile(1, {}, memory={"python": 1 * MIB, "native": 3 * MIB, "retained": 0})
    grown_by = {"python": 5 * MIB, "native": 90 * MIB, "retained": 0}
    now = profile(1, {}, memory={**grown_by, "lines": {"a.py:3": 2 * MIB, "b.py:1": 100}})
    assert memory_lines(before, now) == [
        "memory held by TensorFlow and other libraries outside Python: 90 MiB gained instead of 3 MiB",
        "memory held by Python objects: 5 MiB gained instead of 1 MiB",
        "allocated at a.py:3: 2.0 MiB more than before",
    ]
    assert memory_lines(now, before) == []
