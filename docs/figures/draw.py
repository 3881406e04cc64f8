"""Draw the figures of method.md from a saved calibration: ``python docs/figures/draw.py JOURNAL``.

Needs the extra ``docs`` (matplotlib).
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

from tfbench.doctor.calibration import CHANGES, CalibrationTrial, Journal, slowdown_text, tally

FOLDER = Path(__file__).parent
INK, ACCENT, GREY = "#1f2933", "#c2410c", "#9aa5b1"


def main(journal: str) -> None:
    trials = Journal(Path(journal)).read()
    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": GREY})
    draw_found(trials)
    draw_launches([trial for trial in trials if trial.slowdown == 0])
    draw_costs(trials)


def draw_found(trials: list[CalibrationTrial]) -> None:
    """Draw the share of unchanged and of slowed code that is reported as regressed."""
    figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
    row = tally("tfbench", trials)
    points = {those[0].slowdown: row.found(kind, *CHANGES) for kind, those in row.trials.items()}
    x, y = [100 * slowdown for slowdown in points], [100 * rate.value for rate in points.values()]
    low = [100 * (rate.value - rate.low) for rate in points.values()]
    high = [100 * (rate.high - rate.value) for rate in points.values()]
    axes.errorbar(x, y, yerr=[low, high], color=ACCENT, marker="o", capsize=3)
    axes.set(xlabel="injected slowdown, %", ylabel="reported as regressed, %", ylim=(-3, 103))
    figure.savefig(FOLDER / "found.png", dpi=110)


def draw_launches(same: list[CalibrationTrial]) -> None:
    """Draw the effect of every launch of unchanged code."""
    workloads = sorted({trial.workload for trial in same}, key=lambda name: _spread(same, name))
    figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
    for height, name in enumerate(workloads):
        effects = [100 * effect for trial in same if trial.workload == name for effect in trial.effects]
        axes.plot(effects, [height] * len(effects), "|", color=INK, alpha=0.35, markersize=9)
    axes.axvspan(-2, 2, color=ACCENT, alpha=0.08, lw=0)
    axes.set(xlabel="effect of a launch on unchanged code, % (shaded: tolerance)", xlim=(-10, 10))
    axes.set_yticks(range(len(workloads)), workloads)
    figure.savefig(FOLDER / "launches.png", dpi=110)


def draw_costs(raced: list[CalibrationTrial]) -> None:
    """Draw the share of verdicts that are reached within a number of seconds."""
    figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
    for slowdown, colour in zip(
        sorted({trial.slowdown for trial in raced}), (INK, GREY, "#d9a441", ACCENT, "#7c2d12"), strict=False
    ):
        seconds = sorted(trial.seconds for trial in raced if trial.slowdown == slowdown)
        share = [100 * (index + 1) / len(seconds) for index in range(len(seconds))]
        axes.step(
            seconds, share, where="post", color=colour, label=f"+{slowdown_text(slowdown)}" if slowdown else "unchanged"
        )
    axes.set(
        xlabel="seconds per verdict, without the start of zygotes",
        ylabel="verdicts reached, %",
        xscale="log",
        ylim=(0, 101),
    )
    axes.minorticks_off()
    axes.set_xticks([1, 2, 3, 5, 10, 20, 50], ["1", "2", "3", "5", "10", "20", "50"])
    axes.legend(frameon=False, loc="lower right")
    figure.savefig(FOLDER / "costs.png", dpi=110)


def _spread(trials: list[CalibrationTrial], name: str) -> float:
    effects = sorted(abs(effect) for trial in trials if trial.workload == name for effect in trial.effects)
    return effects[len(effects) // 2]


if __name__ == "__main__":
    main(sys.argv[1])
