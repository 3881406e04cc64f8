"""Reports of runs of any size, with the rounds, metrics and profiles of real ones."""

from __future__ import annotations

import math
import random

from tests.fakes.report import CODE, variant
from tfbench.model import Case, Outcome, Ratio, Reason, Report, Run, Sample, StoredRounds, Verdict
from tfbench.policy import preset
from tfbench.report.summary import CaseTable

HOSTILE = "</script><img src=x onerror=alert(1)> @all #1 [a](http://b.c) `x` | \u202egnp.exe\u2066 \x1b[31m"
SIDE = {
    "spec": "git:main", **CODE, "python": "3.12.1", "packages": {"tensorflow": "2.20.0", "keras": "3.9", "numpy": "2.2"},
    "settings": {}, "machine": {"processor": "AMD EPYC 7B13", "system": "Linux"},
}  # fmt: skip
SIDES = {
    "baseline": SIDE,
    "contender": {**SIDE, "spec": "working tree", "packages": {**SIDE["packages"], "numpy": "2.3"}},
}
EFFECTS = {Outcome.UNCHANGED: 1.0, Outcome.REGRESSED: 1.08, Outcome.IMPROVED: 0.93, Outcome.INCONCLUSIVE: 1.015}


def case_of(number: int, extra: str = "") -> Case:
    family, precision, compiler = number // 6, number % 3, number % 6 // 3
    levels = (
        ("compiler", ("none", "xla")[compiler]),
        ("precision", ("float32", "mixed_float16", "mixed_bfloat16")[precision]),
    )
    group = f"benchmarks/test_linear.py::test_matmul{family}{extra}"
    label = ",".join(f"{axis}={level}" for axis, level in levels)
    return Case(f"{group}[{label}]", f"test_matmul{family}", group, levels, number % 6 == 0)


def outcome_of(number: int) -> Outcome:
    return {3: Outcome.REGRESSED, 11: Outcome.IMPROVED, 17: Outcome.INCONCLUSIVE, 20: Outcome.ERROR}.get(
        number % 23, Outcome.UNCHANGED
    )


def run_report(cases: int, launches: int = 6, rounds: int = 40, hostile: bool = False, seed: int = 1) -> Report:
    """Make the report of a race of two sides."""
    rng = random.Random(seed)
    verdicts, stored, profiles, due = [], [], [], []
    for number in range(cases):
        case, outcome = case_of(number, HOSTILE * (hostile and number % 5 == 3)), outcome_of(number)
        effect, seconds = EFFECTS.get(outcome, 1.0) * math.exp(rng.gauss(0, 0.004)), 10 ** rng.uniform(-5, -2)
        ratio = Ratio(effect, effect * 0.985, effect * (1.1 if outcome is Outcome.INCONCLUSIVE else 1.015), 0.99)
        due.append(case.name)
        if outcome is Outcome.ERROR:
            verdicts.append(Verdict.of(case, outcome, Reason("broken", f"ValueError: {HOSTILE if hostile else 'no'}")))
            continue
        text = HOSTILE if hostile else f"{effect - 1:+.1%} (interval {ratio.low - 1:+.1%} to {ratio.high - 1:+.1%})"
        counts = {"launches": launches, "rounds": launches * rounds, "wall_seconds": 4.2}
        verdicts.append(Verdict.of(case, outcome, Reason("slower", text), ratio=ratio, **counts))
        same = Reason("same", "12, as before")
        verdicts.append(Verdict.of(case, Outcome.UNCHANGED, same, "graph_ops", launches=1, values=(12, 12)))
        if outcome is Outcome.REGRESSED:
            lost = Reason("more", "2 before, 0 now: lost _FusedConv2D(BiasAdd, Relu); gained 2 Cast")
            verdicts.append(Verdict.of(case, outcome, lost, "fused_ops", launches=1, values=(2, 0)))
            takes = "profile: a step takes 2 ms instead of 1.85 ms; host compute grew most"
            why = [takes, "  MatMul +0.15 ms per step"]
            profiles.append({"schema": "tfbench-profile/1", "case": case.name, "side": "contender", "folder": "p/1",
                             "why": why, "step": 2e-3, "time": {"host compute": 1.4e-3}})  # fmt: skip
        stored += [
            StoredRounds.of_sample(_sample(rng, case, size, launches, rounds), side)
            for side, size in (("baseline", seconds), ("contender", seconds * effect))
        ]
    return Report(
        policy=preset("standard").as_json(), sides=SIDES, verdicts=tuple(verdicts), wall_seconds=190.0,
        seconds_by_phase={"rounds": 120.0, "preparing": 50.0, "starting": 20.0},
        due=tuple(due), complete=True, profiles=tuple(profiles), rounds=tuple(stored),
    )  # fmt: skip


def _sample(rng: random.Random, case: Case, seconds: float, launches: int, rounds: int) -> Sample:
    def run() -> Run:
        level = seconds * math.exp(rng.gauss(0, 0.01))
        return Run(tuple(level * math.exp(abs(rng.gauss(0, 0.015))) for _ in range(rounds)), 4)

    return Sample(case, tuple(run() for _ in range(launches)))


def variants_report(families: int = 4) -> Report:
    """Make the report of a run without another side: variants, and the ceilings of the machine."""
    rng = random.Random(2)
    results = []
    for number in range(6 * families):
        case, seconds = case_of(number), 10 ** rng.uniform(-4, -3)
        reference = case_of(number - number % 6).name
        ratio = None if case.name == reference else Ratio(r := rng.uniform(0.5, 1.4), r * 0.98, r * 1.02, 0.99)
        outcome = None if ratio is None else Outcome.REGRESSED if ratio.low > 1 else Outcome.IMPROVED
        facts = {"flops": 1e9 * 10 ** rng.uniform(-3, -1), "bytes": 1e7 * 10 ** rng.uniform(-2, 0.5), "first_call": 0.3}
        results.append(variant(case, reference, seconds, ratio, outcome, 3, 300, facts))
    for name, facts in (("flops", {"flops": 4e11, "bytes": 1e6}), ("bytes", {"bytes": 2e10})):
        group = f"benchmarks/test_ceilings.py::test_{name}"
        case = Case(group, f"test_{name}", group)
        results.append(variant(case, case.name, 1.0, None, None, 3, 300, {**facts, "ceiling": name}))
    verdicts = [Verdict.of(one.case, Outcome.NEW, Reason("no-baseline", "measured")) for one in results]
    names = tuple(one.case.name for one in results)
    return Report(preset("quick").as_json(), {"contender": SIDES["contender"]}, tuple(verdicts), tuple(results),
                  wall_seconds=60.0, due=names, complete=True)  # fmt: skip


def versions(cases: int = 12) -> CaseTable:
    """Make ratios of cases under three versions."""
    rng = random.Random(3)
    ratios = {
        case_of(n).name: (1.0, rng.uniform(0.8, 1.3), rng.uniform(0.6, 1.5) if n % 5 else None) for n in range(cases)
    }
    caption = "Ratio of time to 2.19.1, raced in the same rounds."
    return CaseTable.of_times(caption, ("2.19.1", "2.20.0", "2.21.0"), ratios)
