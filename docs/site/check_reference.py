"""Compare docs/reference.md with the code: commands, options, policy fields and presets.

    python docs/site/check_reference.py

Prints one line per difference and exits with 1 if there is any. Needs an environment with tfbench.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tfbench import plugin
from tfbench.cli import COMMANDS, functions
from tfbench.policy import PRESETS

PAGE = Path(__file__).parents[1] / "reference.md"
UNITS = {"%": 0.01, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "MiB": float(1 << 20), "": 1.0}
COLUMNS = ("quick", "standard", "strict")
SELECTION = {"-k", "-m", "--deselect", "--ignore", "--device", "--scale", "--cpus"}
"""Options that the page lists once for several commands."""


def main() -> int:
    page = PAGE.read_text(encoding="utf-8")
    problems = [*check_policy(page), *check_commands(page), *check_pytest_options(page)]
    print("\n".join(problems) or f"{PAGE.name} agrees with the code")
    return int(bool(problems))


def check_policy(page: str) -> Iterator[str]:
    """Yield the policy fields that differ between presets and are missing, and rows with an unknown name or another value."""
    rows = re.findall(
        r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \| ([^|]+) \|", page.partition("<!-- policy: begin -->")[2], re.M
    )
    table = {name: values for name, *values in rows}
    fields = {
        name: [dict(leaves(PRESETS[preset]))[name] for preset in COLUMNS] for name, _ in leaves(PRESETS["standard"])
    }
    differing = (name for name, values in fields.items() if values.count(values[0]) < len(values))
    yield from (f"policy field {name} is not in the table" for name in differing if name not in table)
    yield from (f"the table has {name}, which is no policy field" for name in table if name not in fields)
    for name in fields.keys() & table.keys():
        for preset, text, value in zip(COLUMNS, table[name], fields[name], strict=True):
            if not same(text.strip(), value):
                yield f"policy {preset}: {name} is {value!r}, and the table has {text.strip()}"


def leaves(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield name and value of every field, those of nested groups included."""
    for field in dataclasses.fields(value):
        inner = getattr(value, field.name)
        if dataclasses.is_dataclass(inner):
            yield from leaves(inner)
        elif field.name != "name":
            yield field.name, inner


def same(text: str, value: Any) -> bool:
    """Whether the text of a cell is the value, in any unit."""
    if isinstance(value, (bool, str)) or value is None:
        return text == str(value)
    values = value if isinstance(value, tuple) else (value,)
    parts = [re.fullmatch(r"(.*?)\s*(%|µs|ms|s|MiB|)", part.strip()) for part in text.split(",")]
    numbers = [float(part[1]) * UNITS[part[2]] for part in parts if part]
    return len(numbers) == len(values) and all(
        abs(a - b) <= 1e-9 * abs(b) for a, b in zip(numbers, values, strict=True)
    )


def check_commands(page: str) -> Iterator[str]:
    """Yield the commands and options that only one of the page and the parsers has."""
    sections = dict(re.findall(r"^### `tfbench ([\w-]+)`\n(.*?)(?=^##)", page, re.M | re.S))
    found = {}
    for name in COMMANDS:
        parser = argparse.ArgumentParser(add_help=False)
        functions(name)[0](parser)
        found[name] = options(parser)
    yield from (f"command {name} is not on the page" for name in found if name not in sections)
    yield from (f"the page has the command {name}, which does not exist" for name in sections if name not in found)
    for name in found.keys() & sections.keys():
        cells = re.findall(r"^\| ((?:[^|\\]|\\.)*) \|", sections[name], re.M)
        written = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", " ".join(cells)))
        expected = found[name] - SELECTION if SELECTION.issubset(found[name]) else found[name]
        yield from (f"{name} {option} is not on the page" for option in sorted(expected - written))
        yield from (f"the page has {name} {option}, which does not exist" for option in sorted(written - found[name]))


def options(parser: argparse.ArgumentParser) -> set[str]:
    """Return the options of a parser and of its subparsers."""
    found = {option for action in parser._actions for option in action.option_strings}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found |= {option for inner in action.choices.values() for option in options(inner)}
    return found - {"-h", "--help"}


def check_pytest_options(page: str) -> Iterator[str]:
    """Yield the options of ``pytest --benchmark`` that only one of the page and the plugin has."""
    registered = {"--benchmark", *(f"--{option.name}" for option in plugin.OPTIONS)}
    table = page.partition("## `pytest --benchmark`")[2].partition("\nEvery option but")[0]
    written = {
        option for row in re.findall(r"^\| (`--.*?) \|", table, re.M) for option in re.findall(r"`(--[\w-]+)", row)
    }
    yield from (f"pytest {option} is not on the page" for option in sorted(registered - written))
    yield from (f"the page has pytest {option}, which does not exist" for option in sorted(written - registered))


if __name__ == "__main__":
    sys.exit(main())
