"""Compare the code of two reports, side by side."""

from __future__ import annotations

from tfbench.model import Report
from tfbench.report.differences import code_of_side

Named = tuple[str, Report]
"""The name of a report in error messages, and the report."""


def unlike_code(first: Named, second: Named) -> str:
    """Return how the code of two reports differs, ``""`` if both raced the same."""
    for name, report in (first, second):
        if not report.sides or not all(side.get("tree") for side in report.sides.values()):
            return f"{name} does not tell which code it raced; measure again with this version of tfbench"
    for side in sorted({*first[1].sides, *second[1].sides}):
        one, other = (report.sides.get(side, {}) for _, report in (first, second))
        if (one.get("commit"), one.get("tree")) != (other.get("commit"), other.get("tree")):
            texts = f"{code_of_side(one)} in {first[0]} and {code_of_side(other)} in {second[0]}"
            return f"the {side} is {texts}; race the same code, such as git: with a commit instead of a branch"
    return ""
