"""Change the code that decides and stores a little at a time, and see which changes no test notices.

Usage: ``make mutants ARGS="[--sample N] [--seed N] [MUTANT ...]"``, as in ``ARGS="tfbench.ruling.*"``.

mutmut makes the mutants and runs them; ``[tool.mutmut]`` in pyproject.toml has the modules and their tests. mutmut alone
skips every decorated function, properties and context managers included. They hold much of what is stored here.
"""

from __future__ import annotations

import argparse
import functools
import os
import random
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

import libcst
from hypothesis import Phase, settings
from mutmut import __main__ as mutmut
from mutmut.configuration import config
from mutmut.mutation import file_mutation
from mutmut.runners.harness import PytestRunner
from mutmut.stats import status_by_exit_code

DECORATORS = ("property", "contextmanager", "cache", "lru_cache")
"""Decorators that leave a function as it is, so that the mutant can be chosen inside of them."""
KILLED = ("killed", "timeout", "segfault")


def main() -> None:
    parser = argparse.ArgumentParser(description="Run mutants of the code that decides and stores.")
    parser.add_argument("names", nargs="*", metavar="MUTANT", help="names of mutants, with * and ?")
    parser.add_argument("--sample", type=int, metavar="N", help="run N mutants, drawn at random")
    parser.add_argument("--seed", type=int, default=1, help="seed of the sample (default: 1)")
    parser.add_argument("--jobs", type=int, help="mutants at a time (default: one per processor)")
    options = parser.parse_args()
    _mutate_decorated_functions()
    _empty_caches_before_each_test()
    if options.sample:
        _draw(options.sample, options.seed)
    # The tests of one run share nothing with those of the next, and a deadline would kill mutants of a busy machine.
    settings.register_profile(
        "mutants", deadline=None, database=None, derandomize=True, phases=[Phase.explicit, Phase.generate]
    )
    settings.load_profile("mutants")
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # a third of a second for each mutant
    with tempfile.TemporaryDirectory(prefix="tfbench-mutants-") as folder:
        os.chmod(folder, 0o755)  # root starts a database as another user
        tempfile.tempdir = os.environ["TMPDIR"] = folder
        mutmut._run(options.names, options.jobs)
    _report()


def _mutate_decorated_functions() -> None:
    skip = file_mutation.MutationVisitor._skip_node_and_children
    arrange = file_mutation.function_trampoline_arrangement

    def skip_fewer(self: Any, node: libcst.CSTNode) -> bool:
        if isinstance(node, libcst.FunctionDef) and node.decorators and all(map(_is_transparent, node.decorators)):
            return False
        return bool(skip(self, node))

    def arrange_plain(function: libcst.FunctionDef, *others: Any, **named: Any) -> Any:
        """Decorate what chooses the mutant, and not the original and the mutants once more."""
        before, (chooser, *copies), after, names = arrange(function, *others, **named)
        if all(map(_is_transparent, function.decorators)):
            copies = [copy.with_changes(decorators=()) for copy in copies]
        return before, [chooser, *copies], after, names

    file_mutation.MutationVisitor._skip_node_and_children = skip_fewer
    file_mutation.function_trampoline_arrangement = arrange_plain


def _is_transparent(decorator: libcst.Decorator) -> bool:
    what = decorator.decorator
    name = what.func if isinstance(what, libcst.Call) else what
    return isinstance(name, libcst.Name) and name.value in DECORATORS


def _empty_caches_before_each_test() -> None:
    """Empty the caches of the mutated modules. Otherwise only the first of several tests would run a cached function."""
    execute = PytestRunner.execute_pytest

    def execute_uncached(self: Any, params: list[str], plugins: Sequence[object] = ()) -> int:
        return int(execute(self, params, plugins=[*plugins, _EmptyCaches()]))

    PytestRunner.execute_pytest = execute_uncached


class _EmptyCaches:
    def pytest_runtest_setup(self) -> None:
        for name, module in list(sys.modules.items()):
            if name.startswith("tfbench.") and config().should_mutate(f"{name.replace('.', '/')}.py"):
                for one in vars(module).values():
                    if isinstance(one, functools._lru_cache_wrapper):
                        one.cache_clear()


def _draw(count: int, seed: int) -> None:
    collect = mutmut.collect_source_file_mutation_data

    def sampled(**names: Any) -> Any:
        mutants, files = collect(**names)
        mutants = sorted(mutants, key=lambda mutant: mutant[1])
        return random.Random(seed).sample(mutants, min(count, len(mutants))), files

    mutmut.collect_source_file_mutation_data = sampled


def _report() -> None:
    """Print the share of the mutants that the tests killed, and the names of the survivors."""
    _, files = mutmut.collect_source_file_mutation_data(mutant_names=())
    codes = {name: code for one in files.values() for name, code in one.exit_code_by_key.items()}
    ran = {
        name: status for name, code in sorted(codes.items()) if (status := status_by_exit_code[code]) != "not checked"
    }
    survivors = {name: status for name, status in ran.items() if status not in KILLED}
    print(f"\n{len(ran)} mutants, {1 - len(survivors) / max(1, len(ran)):.1%} killed. Survivors (mutmut show NAME):")
    for name, status in survivors.items():
        print(f"{name}: {status}")


if __name__ == "__main__":
    sys.exit(main())
