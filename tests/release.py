"""Build the distribution, check it, and use the wheel in an empty environment: ``make release-check``."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "build" / "dist"
SMOKE = """
import numpy as np
from tfbench import Bench


def test_sort(bench: Bench) -> None:
    numbers = np.random.default_rng(1).random(2_000)
    bench(lambda: np.sort(numbers), items=2_000)
"""


def run(*words: str | Path, cwd: Path = ROOT, codes: tuple[int, ...] = (0,)) -> str:
    """Run a command and return its output. Any other exit code than the expected ones ends the check."""
    print(">", *words, flush=True)
    done = subprocess.run([*map(str, words)], cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode not in codes:
        sys.exit(f"exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def main() -> None:
    uv = Path(sys.executable).with_name("uv")
    for old in DIST.glob("*"):
        old.unlink()
    run(uv, "build", "--quiet", "--out-dir", DIST)
    wheel, sdist = next(DIST.glob("*.whl")), next(DIST.glob("*.tar.gz"))
    run(uv, "tool", "run", "--quiet", "twine", "check", "--strict", wheel, sdist)
    with tempfile.TemporaryDirectory(prefix="tfbench-release-") as folder:
        place = Path(folder)
        binaries = place / "env" / "bin"
        run(uv, "venv", "--quiet", "--python", sys.executable, place / "env")
        run(uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", binaries / "python", wheel)
        (place / "test_smoke.py").write_text(SMOKE)
        print(run(binaries / "tfbench", "--version", cwd=place), end="")
        race = [binaries / "pytest", "--benchmark", "--policy", "quick", "--against", "self", "test_smoke.py"]
        print(run(*race, cwd=place).splitlines()[-1])
        print(run(*race, "--inject-slowdown", "0.5", cwd=place, codes=(1,)).splitlines()[-1])


if __name__ == "__main__":
    main()
