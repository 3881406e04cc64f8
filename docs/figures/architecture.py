"""Draw architecture.svg from the imports of tfbench: ``python docs/figures/architecture.py [--check]``.

A line goes from a package to each package that it imports and does not reach through another one. Lines to the lowest
two layers are left out. A line that goes up, against the layers, is red. ``--check`` draws no file, and exits with 1 if the committed one is out of date.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.test_architecture import FILES, LAYERS, LEVELS, ours, room  # noqa: E402 - the test holds the layers

LOWEST = {*LAYERS[-1], *LAYERS[-2]}
TARGET = Path(__file__).with_suffix(".svg")
ROLES = {
    "cli": "command line",
    "commands": "one file per subject",
    "compare": "result files side by side",
    "plugin": "pytest hooks, items to cases",
    "versions": "version matrix, bisection",
    "fleet": "jobs for many machines",
    "session": "one run: races, results, baselines",
    "doctor": "machine, error rates",
    "race": "launches, looks, confirmation",
    "report": "terminal, JSON, merging",
    "ruling": "exit codes, headlines",
    "metrics": "metrics other than time",
    "worker": "measuring process",
    "profiles": "XPlane files, attribution",
    "gpus": "NVML, locks, monitor",
    "stats": "interval, looks, verdict",
    "sides": "environments, source trees",
    "storage": "baselines, history",
    "suite": "axes, contracts, stub",
    "policy": "thresholds and budgets",
    "protocol": "messages",
    "facts": "a process as text",
    "imports": "other source trees",
    "model": "shared immutable types",
    "errors": "exceptions",
    "fs": "atomic files",
    "untrusted": "foreign text",
}
WIDTH, HEIGHT, ROW, MARGIN = 170, 40, 80, 20
COLUMNS = max(map(len, LAYERS))
INK, GREY, ACCENT, RED = "#1f2933", "#9aa5b1", "#c2410c", "#dc2626"
FONT = "font-family='sans-serif'"


def package_imports() -> dict[str, set[str]]:
    """Return, for each package or module at the top of tfbench, the others that it imports."""
    found: dict[str, set[str]] = {name: set() for name in LEVELS}
    for file in FILES:
        if (name := room(file)) in found:
            found[name] |= ours(file) & found.keys() - {name}
    return found


def reduced(imports: dict[str, set[str]]) -> dict[str, set[str]]:
    """Leave out each import that another import already reaches."""

    def reach(name: str, seen: frozenset[str] = frozenset()) -> set[str]:
        direct = imports[name] - seen
        return direct.union(*(reach(other, seen | {name}) for other in direct))

    return {
        name: {one for one in others if not any(one in reach(other, frozenset({name})) for other in others - {one})}
        for name, others in imports.items()
    }


def draw(imports: dict[str, set[str]]) -> str:
    """Return the diagram as SVG text."""
    place = {}
    for index, row in enumerate(LAYERS):
        for column, name in enumerate(row):
            x = MARGIN + (column + (COLUMNS - len(row)) / 2) * (WIDTH + MARGIN)
            place[name] = (x, MARGIN + index * ROW)
    width, height = MARGIN + COLUMNS * (WIDTH + MARGIN), MARGIN + len(LAYERS) * ROW - (ROW - HEIGHT) + MARGIN
    lines = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}' height='{height}' "
        "role='img' aria-label='Packages of tfbench and their imports'>",
        f"<rect width='{width}' height='{height}' fill='white'/>",
    ]
    upper = {name: {other for other in others if other not in LOWEST} for name, others in imports.items()}
    for name, others in sorted(reduced(upper).items()):
        for other in sorted(others):
            lines.append(_line(place[name], place[other]))
    lines += [_box(name, *place[name]) for name in sorted(place)]
    return "\n".join([*lines, "</svg>"]) + "\n"


def _line(upper: tuple[float, float], lower: tuple[float, float]) -> str:
    x1, y1, x2, y2 = upper[0] + WIDTH / 2, upper[1] + HEIGHT, lower[0] + WIDTH / 2, lower[1]
    down = upper[1] < lower[1]
    bend = ROW / 2
    return (
        f"<path d='M{x1:.0f},{y1:.0f} C{x1:.0f},{y1 + bend:.0f} {x2:.0f},{y2 - bend:.0f} {x2:.0f},{y2:.0f}' "
        f"fill='none' stroke='{GREY if down else RED}' stroke-width='1.2'/>"
    )


def _box(name: str, x: float, y: float) -> str:
    colour = ACCENT if name == "worker" else INK
    return (
        f"<rect x='{x:.0f}' y='{y:.0f}' width='{WIDTH}' height='{HEIGHT}' rx='5' fill='white' stroke='{colour}'/>"
        f"<text x='{x + WIDTH / 2:.0f}' y='{y + 17:.0f}' {FONT} font-size='13' font-weight='bold' "
        f"text-anchor='middle' fill='{colour}'>{name}</text>"
        f"<text x='{x + WIDTH / 2:.0f}' y='{y + 32:.0f}' {FONT} font-size='10.5' "
        f"text-anchor='middle' fill='{colour}'>{ROLES[name]}</text>"
    )


def main() -> int:
    if unknown := sorted(LEVELS.keys() - ROLES.keys()):
        print(f"{Path(__file__).name}: no role for {', '.join(unknown)}; add it to ROLES", file=sys.stderr)
        return 1
    text = draw(package_imports())
    if "--check" in sys.argv[1:]:
        if TARGET.read_text(encoding="utf-8") == text:
            return 0
        print(f"{TARGET.name} is out of date: run python {Path(__file__).relative_to(ROOT)}", file=sys.stderr)
        return 1
    TARGET.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
