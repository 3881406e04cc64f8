"""Parsing of option values."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tfbench.errors import UsageError
from tfbench.plugin.options import available_cpus, parse_cpus, parse_slowdown, parse_suite_limit

ROOT = Path(__file__).resolve().parents[2]


def test_processors_are_parsed_from_lists_and_ranges():
    first, last = available_cpus()[0], available_cpus()[-1]
    assert parse_cpus(f"{first}") == (first,)
    assert parse_cpus(f"{last},{first}-{first}") == tuple(sorted({first, last}))


@pytest.mark.parametrize("text", ["x", "1-", "", "3-2", "99999", "-1", "0;1"])
def test_an_invalid_list_of_processors_is_refused(text):
    with pytest.raises(UsageError, match="--cpus"):
        parse_cpus(text)


def test_a_slowdown_is_a_fraction_from_0_to_10():
    assert parse_slowdown("0.10") == 0.1
    for text in ("x", "-1", "nan", "11"):
        with pytest.raises(UsageError, match="--inject-slowdown"):
            parse_slowdown(text)


@pytest.mark.parametrize(("text", "limit"), [("0.5%", 0.005), ("0.02", 0.02), ("3%", 0.03), (None, 0.0)])
def test_the_slowdown_of_the_mean_is_a_percentage_or_a_fraction(text, limit):
    assert parse_suite_limit(text, raced=True, partial="") == pytest.approx(limit)


@pytest.mark.parametrize(
    ("text", "raced", "partial", "why"),
    [
        ("x", True, "", "such as 0.5%"), ("%", True, "", "such as 0.5%"), ("0", True, "", "such as 0.5%"),
        ("100%", True, "", "such as 0.5%"), ("nan", True, "", "such as 0.5%"), ("-1%", True, "", "such as 0.5%"),
        ("1%", False, "", "--against SPEC or --baseline"), ("1%", True, "--shard", "without --shard"),
    ],
)  # fmt: skip
def test_a_mean_that_cannot_be_judged_is_refused(text, raced, partial, why):
    with pytest.raises(UsageError, match="--gate-suite") as caught:
        parse_suite_limit(text, raced=raced, partial=partial)
    assert why in str(caught.value)


@pytest.mark.parametrize("given", [[], ["--profile"]])
def test_tests_run_beside_another_plugin_with_the_option_profile(tmp_path, given):
    """pytest-profiling is such a plugin."""
    (tmp_path / "other.py").write_text(
        "def pytest_addoption(parser):\n    parser.addoption('--profile', action='store_true')\n"
    )
    (tmp_path / "test_a.py").write_text("def test_a():\n    pass\n")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "other", "-p", "tfbench.plugin", "-q", *given],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
