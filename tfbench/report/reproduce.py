"""Write the command that races a case of a report again."""

from __future__ import annotations

from tfbench.model import Outcome, Report, Verdict
from tfbench.storage.baselines import baseline_of
from tfbench.untrusted import command, is_case, is_shared_spec, printable

_DEFAULT_POLICY = "standard"


def command_for(report: Report, verdict: Verdict, *, shared: bool = False) -> str:
    """Return the command that races the case of a verdict again, quoted for a shell.

    Args:
        shared: Whether strangers read the command. Then the other side must be of a form that can do no harm.

    Returns:
        ``""`` if the case no longer exists, or a name or side is not one that a shell can safely be given.
    """
    name = verdict.case.name
    if verdict.outcome is Outcome.MISSING or not is_case(name):
        return ""
    spec = str(report.sides.get("baseline", {}).get("spec", ""))
    baseline = baseline_of(spec)
    if spec and not baseline and (not is_shared_spec(spec) if shared else printable(spec) != spec):
        return ""
    words = ["--baseline", baseline] if baseline else ["--against", spec] if spec else []
    policy = str(report.policy.get("name") or _DEFAULT_POLICY)
    if policy != _DEFAULT_POLICY and policy.isalnum() and policy.isascii():
        words += ["--policy", policy]
    slowdown = report.sides.get("contender", {}).get("slowdown")
    if spec and isinstance(slowdown, (int, float)) and slowdown > 0:
        words += ["--inject-slowdown", f"{slowdown:g}"]
    return command("pytest", "--benchmark", *words, name)
