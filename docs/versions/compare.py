"""Several versions of TensorFlow on the same cases, raced, and beside it the ordinary way.

    python docs/versions/compare.py measure 2.15.1 2.17.1 2.19.1 2.21.0     # docs/data/versions-*.json, half an hour
    python docs/versions/compare.py tell                                    # the tables and figure of the page

The ordinary way is pytest-benchmark with its own settings: each version alone, one after the other, all cases in one
process, and a case called slower where its median is 5% above the reference's. The reference takes part twice both
ways: whatever is said of its second time is wrong. `tell` needs the extra ``docs`` (matplotlib).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tfbench.calibration.saved import FENCE
from tfbench.sides.environments import Environments, kept
from tfbench.store.files import write_whole

ROOT = Path(__file__).resolve().parents[2]
RACED, ORDINARY = (ROOT / "docs" / "data" / f"versions-{way}.json" for way in ("raced", "ordinary"))
FIGURE = ROOT / "docs" / "figures" / "versions.png"
CHOSEN = (
    "(float32 and (test_matmul or test_conv2d_3x3 or test_softmax or test_layer_norm or attention or"
    " test_training_step)) or test_batchnorm_training or test_embedding or test_sparse_adam or test_eager_add or"
    " test_function_call or test_keras_invocation or test_execution or test_training_on_batch or test_adam"
)
AGAIN = "self"
WAYS = ["raced", "ordinary"]


def measure(versions: list[str], chosen: str, ways: list[str]) -> None:
    """The ways that are asked for, one after the other."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if "raced" in ways:
        race = [sys.executable, "-m", "tfbench", "versions", *versions, AGAIN, "-k", chosen, f"--report-json={RACED}"]
        subprocess.run(race, cwd=ROOT, check=True)
    if "ordinary" in ways:
        alone(versions, chosen)


def alone(versions: list[str], chosen: str) -> None:
    """Each version by itself, the first one once more at the end."""
    requests = [[f"tensorflow=={version}", "pytest-benchmark>=5.3.1,<5.4"] for version in versions]
    found = {}
    with Environments(kept(), print) as environments:
        environments.prefer(requests)
        made = [environments.get(request) for request in requests]
        began = time.monotonic()
        for label, environment in zip([*versions, AGAIN], [*made, made[0]], strict=True):
            print(f"the ordinary way: {label}", flush=True)
            found[label] = ordinary(environment.executable, chosen)
    content = {"fence": FENCE, "seconds": round(time.monotonic() - began, 1), "medians": found}
    write_whole(ORDINARY, json.dumps(content, indent=1) + "\n")


def ordinary(executable: str, chosen: str) -> dict[str, float]:
    """Case -> median seconds, of one run of pytest-benchmark."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "tfbench").symlink_to(ROOT / "tfbench")
        target = Path(folder, "saved.json")
        command = [executable, "-m", "pytest", "-q", "benchmarks", "-k", chosen]
        command += ["-p", "ordinary", "-p", "no:tfbench.plugin", "-p", "no:cacheprovider"]
        command += [f"--rootdir={ROOT}", "-c", os.devnull, "--import-mode=importlib", f"--benchmark-json={target}"]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([folder, str(Path(__file__).parent), str(ROOT)])}
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
        if not target.exists():
            raise SystemExit(done.stdout[-3000:] + done.stderr[-2000:])
        return {row["fullname"]: row["stats"]["median"] for row in json.loads(target.read_text())["benchmarks"]}


def tell() -> None:
    """Markdown of the page, and its figure."""
    raced, saved = json.loads(RACED.read_text()), json.loads(ORDINARY.read_text())
    labels = list(raced["sides"])
    told = [case for case in raced["cases"] if all("median_seconds" in case["sides"][label] for label in labels)]
    cases = [case for case in told if all(case["case"] in saved["medians"][label] for label in labels)]
    claims = {case["case"]: {label: both(case, label, labels[0], saved) for label in labels[1:]} for case in cases}
    print(f"{len(cases)} cases; raced in {raced['wall_seconds']:.0f} s, the ordinary way in {saved['seconds']:.0f} s\n")
    print(row("against " + labels[0], "raced: slower", "faster", "the same", "open", "ordinary: slower", "faster"))
    print(row(*["---"] * 7))
    for label in labels[1:]:
        outcomes = [claim[label]["outcome"] for claim in claims.values()]
        ratios = [claim[label]["ordinary"] for claim in claims.values()]
        counts = [outcomes.count(word) for word in ("regressed", "improved", "unchanged", "inconclusive")]
        slower, faster = sum(r > FENCE for r in ratios), sum(r < 1 / FENCE for r in ratios)
        print(row(label if label != AGAIN else f"{labels[0]} again", *counts, slower, faster))
    print("\n" + row("case", *(label if label != AGAIN else f"{labels[0]} again" for label in labels[1:])))
    print(row("---", *["---:"] * (len(labels) - 1)))
    for name, claim in sorted(claims.items(), key=lambda one: -max(c["center"] or 0 for c in one[1].values())):
        cells = [f"{mark(c)} / {c['ordinary']:.2f}" for c in claim.values()]
        print(row(f"`{name.rpartition('::')[2]}`", *cells))
    draw(claims, labels)


def both(case: dict, label: str, reference: str, saved: dict) -> dict:
    """What the two ways say of a case on a side."""
    entry = case["sides"][label]
    ratio = saved["medians"][label][case["case"]] / saved["medians"][reference][case["case"]]
    measured = entry.get("ratio") or {"center": None, "low": None, "high": None}
    return {"outcome": entry.get("outcome"), **measured, "ordinary": ratio}


def mark(claim: dict) -> str:
    text = f"{claim['center']:.3f}" if claim["center"] else "-"
    return f"**{text}**" if claim["outcome"] in ("regressed", "improved") else text


def row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def draw(claims: dict, labels: list[str]) -> None:
    """Ordinary ratio over raced ratio, a panel for the reference's second time and one for the other versions."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    figure, panels = plt.subplots(1, 2, figsize=(9, 4.2), layout="constrained", sharey=True)
    others = [label for label in labels[1:] if label != AGAIN]
    colours = dict(zip([AGAIN, *others], ["#1f2933", "#9aa5b1", "#2563eb", "#c2410c", "#15803d"], strict=False))
    for panel, shown, title in zip(
        panels, ([AGAIN], others), (f"{labels[0]} once more", "other versions"), strict=True
    ):
        for label in shown:
            points = [claim[label] for claim in claims.values() if claim[label]["center"]]
            panel.errorbar(
                [p["center"] for p in points], [p["ordinary"] for p in points],
                xerr=[[p["center"] - p["low"] for p in points], [p["high"] - p["center"] for p in points]],
                fmt="o", ms=4, lw=0.8, color=colours[label], label=label if label != AGAIN else "the same version",
            )  # fmt: skip
        ends = (0.5, 2.0)
        panel.plot(ends, ends, color="#d1d5db", lw=1, zorder=0)
        panel.axhspan(1 / FENCE, FENCE, color="#f3f4f6", zorder=-1)
        panel.set(title=title, xlabel="ratio, raced (interval)", xscale="log", yscale="log", xlim=ends, ylim=ends)
        ticks = [0.5, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2]
        for axis in (panel.xaxis, panel.yaxis):
            axis.set_major_locator(mpl.ticker.FixedLocator(ticks))
            axis.set_major_formatter(mpl.ticker.FormatStrFormatter("%g"))
            axis.set_minor_locator(mpl.ticker.NullLocator())
        panel.legend(frameon=False)
    panels[0].set_ylabel("ratio of medians, each timed alone")
    figure.savefig(FIGURE, dpi=150)
    print(f"\n{FIGURE.relative_to(ROOT)}", file=sys.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    words = parser.add_subparsers(dest="what", required=True)
    measuring = words.add_parser("measure", help="race, then time the ordinary way")
    measuring.add_argument("versions", nargs="+", metavar="VERSION", help="of TensorFlow, the reference first")
    measuring.add_argument("-k", dest="chosen", default=CHOSEN, metavar="EXPRESSION", help="which cases")
    measuring.add_argument("--way", choices=WAYS, nargs="+", default=WAYS, help="one of the two alone")
    words.add_parser("tell", help="print the tables and draw the figure")
    asked = parser.parse_args()
    measure(asked.versions, asked.chosen, asked.way) if asked.what == "measure" else tell()
