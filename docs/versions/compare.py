"""Compare TensorFlow versions on the same cases, by interleaved and by sequential runs.

    python docs/versions/compare.py measure 2.15.1 2.17.1 2.19.1 2.21.0     # docs/data/versions-*.json, half an hour
    python docs/versions/compare.py show                                    # the tables and figure of the page

Interleaved runs are races by tfbench. Sequential runs use pytest-benchmark's default settings: each version alone, all
cases in one process, and a case counts as slower if its median is 5% above the reference's. The reference takes part
twice in both, so every difference reported for its second run is false. `show` needs the extra ``docs`` (matplotlib).
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

from tfbench.fs import write_whole
from tfbench.sides.environments import Environments, kept

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 1.05
"""The ratio above which ``--benchmark-compare-fail=median:5%`` of pytest-benchmark fails."""
METHODS = ["interleaved", "sequential"]
INTERLEAVED, SEQUENTIAL = (ROOT / "docs" / "data" / f"versions-{method}.json" for method in METHODS)
FIGURE = ROOT / "docs" / "figures" / "versions.png"
SELECTION = (
    "(float32 and (test_matmul or test_conv2d_3x3 or test_softmax or test_layer_norm or attention or"
    " test_training_step)) or test_batchnorm_training or test_embedding or test_sparse_adam or test_eager_add or"
    " test_function_call or test_keras_invocation or test_execution or test_training_on_batch or test_adam"
)
AGAIN = "self"


def measure(versions: list[str], selection: str, methods: list[str]) -> None:
    """Measure by each method in turn and write docs/data/versions-*.json."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if "interleaved" in methods:
        race = [sys.executable, "-m", "tfbench", "versions", *versions, AGAIN, "-k", selection]
        subprocess.run([*race, f"--report-json={INTERLEAVED}"], cwd=ROOT, check=True)
    if "sequential" in methods:
        measure_sequentially(versions, selection)


def measure_sequentially(versions: list[str], selection: str) -> None:
    """Time each version alone, and the first one once more at the end."""
    requests = [[f"tensorflow=={version}", "pytest-benchmark>=5.3.1,<5.4"] for version in versions]
    found = {}
    with Environments(kept(), print) as environments:
        environments.prefer(requests)
        made = [environments.get(request) for request in requests]
        began = time.monotonic()
        for label, environment in zip([*versions, AGAIN], [*made, made[0]], strict=True):
            print(f"sequential: {label}", flush=True)
            found[label] = run_pytest_benchmark(environment.executable, selection)
    content = {"fence": LIMIT, "seconds": round(time.monotonic() - began, 1), "medians": found}
    write_whole(SEQUENTIAL, json.dumps(content, indent=1) + "\n")


def run_pytest_benchmark(executable: str, selection: str) -> dict[str, float]:
    """Return the median seconds of each case in one run of pytest-benchmark."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "tfbench").symlink_to(ROOT / "tfbench")
        target = Path(folder, "saved.json")
        command = [executable, "-m", "pytest", "-q", "benchmarks", "-k", selection]
        command += ["-p", "sequential", "-p", "no:tfbench.plugin", "-p", "no:cacheprovider"]
        command += [f"--rootdir={ROOT}", "-c", os.devnull, "--import-mode=importlib", f"--benchmark-json={target}"]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([folder, str(Path(__file__).parent), str(ROOT)])}
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
        if not target.exists():
            raise SystemExit(done.stdout[-3000:] + done.stderr[-2000:])
        return {row["fullname"]: row["stats"]["median"] for row in json.loads(target.read_text())["benchmarks"]}


def show() -> None:
    """Print the Markdown tables of the page and draw its figure."""
    raced, saved = json.loads(INTERLEAVED.read_text()), json.loads(SEQUENTIAL.read_text())
    labels = list(raced["sides"])
    timed = [case for case in raced["cases"] if all("median_seconds" in case["sides"][label] for label in labels)]
    cases = [case for case in timed if all(case["case"] in saved["medians"][label] for label in labels)]
    claims = {case["case"]: {label: both(case, label, labels[0], saved) for label in labels[1:]} for case in cases}
    print(f"{len(cases)} cases, {raced['wall_seconds']:.0f} s interleaved, {saved['seconds']:.0f} s sequential:\n")
    headings = ("interleaved: slower", "faster", "unchanged", "inconclusive", "sequential: slower", "faster")
    print(row("compared with " + labels[0], *headings))
    print(row(*["---"] * 7))
    for label in labels[1:]:
        outcomes = [claim[label]["outcome"] for claim in claims.values()]
        ratios = [claim[label]["sequential"] for claim in claims.values()]
        counts = [outcomes.count(word) for word in ("regressed", "improved", "unchanged", "inconclusive")]
        slower, faster = sum(r > LIMIT for r in ratios), sum(r < 1 / LIMIT for r in ratios)
        print(row(label if label != AGAIN else f"{labels[0]} again", *counts, slower, faster))
    print("\n" + row("case", *(label if label != AGAIN else f"{labels[0]} again" for label in labels[1:])))
    print(row("---", *["---:"] * (len(labels) - 1)))
    for name, claim in sorted(claims.items(), key=lambda one: -max(c["center"] or 0 for c in one[1].values())):
        cells = [f"{mark(c)} / {c['sequential']:.2f}" for c in claim.values()]
        print(row(f"`{name.rpartition('::')[2]}`", *cells))
    draw(claims, labels)


def both(case: dict, label: str, reference: str, saved: dict) -> dict:
    """Return the interleaved and the sequential ratio of a case on a side."""
    entry = case["sides"][label]
    ratio = saved["medians"][label][case["case"]] / saved["medians"][reference][case["case"]]
    measured = entry.get("ratio") or {"center": None, "low": None, "high": None}
    return {"outcome": entry.get("outcome"), **measured, "sequential": ratio}


def mark(claim: dict) -> str:
    text = f"{claim['center']:.3f}" if claim["center"] else "-"
    return f"**{text}**" if claim["outcome"] in ("regressed", "improved") else text


def row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def draw(claims: dict, labels: list[str]) -> None:
    """Draw sequential over interleaved ratios: one panel for the reference's second run, one for other versions."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    figure, panels = plt.subplots(1, 2, figsize=(9, 4.2), layout="constrained", sharey=True)
    others = [label for label in labels[1:] if label != AGAIN]
    colours = dict(zip([AGAIN, *others], ["#1f2933", "#9aa5b1", "#2563eb", "#c2410c", "#15803d"], strict=False))
    for panel, shown, title in zip(panels, ([AGAIN], others), (f"{labels[0]} again", "other versions"), strict=True):
        for label in shown:
            points = [claim[label] for claim in claims.values() if claim[label]["center"]]
            panel.errorbar(
                [p["center"] for p in points], [p["sequential"] for p in points],
                xerr=[[p["center"] - p["low"] for p in points], [p["high"] - p["center"] for p in points]],
                fmt="o", ms=4, lw=0.8, color=colours[label], label=label if label != AGAIN else "the same version",
            )  # fmt: skip
        ends = (0.5, 2.0)
        panel.plot(ends, ends, color="#d1d5db", lw=1, zorder=0)
        panel.axhspan(1 / LIMIT, LIMIT, color="#f3f4f6", zorder=-1)
        panel.set(title=title, xlabel="ratio, interleaved (interval)", xscale="log", yscale="log", xlim=ends, ylim=ends)
        ticks = [0.5, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2]
        for axis in (panel.xaxis, panel.yaxis):
            axis.set_major_locator(mpl.ticker.FixedLocator(ticks))
            axis.set_major_formatter(mpl.ticker.FormatStrFormatter("%g"))
            axis.set_minor_locator(mpl.ticker.NullLocator())
        panel.legend(frameon=False)
    panels[0].set_ylabel("ratio of medians, sequential")
    figure.savefig(FIGURE, dpi=150)
    print(f"\n{FIGURE.relative_to(ROOT)}", file=sys.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    words = parser.add_subparsers(dest="what", required=True)
    measuring = words.add_parser("measure", help="run interleaved, then sequentially")
    measuring.add_argument("versions", nargs="+", metavar="VERSION", help="TensorFlow versions, the reference first")
    measuring.add_argument(
        "-k", dest="selection", default=SELECTION, metavar="EXPRESSION", help="select cases, as pytest does"
    )
    measuring.add_argument("--method", choices=METHODS, nargs="+", default=METHODS, help="only one of the two")
    words.add_parser("show", help="print the tables and draw the figure")
    asked = parser.parse_args()
    measure(asked.versions, asked.selection, asked.method) if asked.what == "measure" else show()
