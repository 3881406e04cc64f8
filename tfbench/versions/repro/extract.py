"""Extract a case from its project: the benchmark with its levels, and everything that it needs, in one namespace."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tfbench.errors import UsageError
from tfbench.model import Case
from tfbench.suite.axes import Variant
from tfbench.versions.repro.modules import Definition, Module, bound_names
from tfbench.versions.repro.rewrite import BENCH, Flattened, name_of, resolve

VARIANT, SHARED, FOLDER = "variant", "shared", "tmp_path"
_VARIANT = "PlainVariant"
"""Replaces tfbench's class, see `tfbench.worker.standalone`."""
_FIXTURES = {BENCH: "StepServer()", VARIANT: "LEVELS", SHARED: "shared", FOLDER: "folder()"}
"""Fixture -> the expression that replaces it."""
_SETUP = "setup"


@dataclass(frozen=True)
class Extract:
    """A case as Python code."""

    imports: tuple[str, ...]
    """Statements, sorted."""
    code: str
    """Definitions, and the call of the benchmark as its last line."""
    names: frozenset[str]
    """Every name that the code uses."""


def extract(
    function: pytest.Function, case: Case, search: Sequence[Path], taken: Iterable[str], given: Mapping[str, str]
) -> Extract:
    """Return the code of a case.

    Args:
        function: Its pytest item.
        search: Folders that the project's modules are imported from.
        taken: Names that the code must not define.
        given: Name -> import statement that stands before the code.

    Raises:
        UsageError: The case cannot be extracted. The text names the place.
    """
    path = Path(inspect.getfile(inspect.unwrap(function.function))).resolve()
    if function.cls is not None:
        raise UsageError(f"{case.name} is a method; a repro needs a benchmark that is a function of its module")
    module = Module(path, search)
    definition = module.find(function.originalname)
    if not isinstance(definition, Definition) or not isinstance(definition.statement, ast.FunctionDef):
        raise UsageError(f"{path}: {function.originalname} is not defined there by `def`")
    arguments = _arguments(function, case)
    # Which helpers of a level are needed is known only when all that is needed is known.
    helpers: frozenset[str] = frozenset({_SETUP})
    while True:
        flattened = Flattened(set(taken), dict(given), helpers)
        _fill(flattened, definition, case, arguments)
        if (found := helpers | flattened.attributes) == helpers:
            break
        helpers = frozenset(found)
    code = "\n\n\n".join(flattened.chunks)
    return Extract(tuple(sorted(flattened.imports)), code, frozenset(_words(code)))


def _words(code: str) -> Iterator[str]:
    return (node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name))


def _arguments(function: pytest.Function, case: Case) -> dict[str, str]:
    """Return argument of the benchmark -> expression."""
    callspec = getattr(function, "callspec", None)
    parameters = {} if callspec is None else callspec.params
    found = {}
    for name in inspect.signature(inspect.unwrap(function.function)).parameters:
        value = parameters.get(name)
        if name in parameters and not isinstance(value, Variant):
            found[name] = repr(value)
            try:
                same = ast.literal_eval(found[name]) == value
            except (ValueError, SyntaxError):
                same = False
            if not same:
                raise UsageError(f"{case.name}: the parameter {name} is no plain value, but {found[name][:80]}")
        elif name in _FIXTURES:
            found[name] = _FIXTURES[name]
        else:
            raise UsageError(
                f"{case.name} takes the fixture {name}; a repro needs a benchmark that takes only {', '.join(_FIXTURES)}"
            )
    return found


def _fill(flattened: Flattened, definition: Definition, case: Case, arguments: Mapping[str, str]) -> None:
    statement = definition.statement
    assert isinstance(statement, ast.FunctionDef)
    for effect in definition.module.tree.body:
        if _acts(effect):
            flattened.add(definition.module, effect)
    if case.variant and VARIANT in arguments:
        axes = dict(_axes(definition.module, statement))
        levels = []
        for axis, level in case.variant:
            if axis not in axes:
                raise UsageError(f"{case.name}: its axis {axis} is not declared as NAME = Axis({axis!r}, Level(…), …)")
            levels.append((axis, *_level(*axes[axis], level, case)))
        texts = [f"{axis!r}: {ast.unparse(flattened.rewritten(module, call))}" for axis, module, call in levels]
        flattened.chunks.append(f"LEVELS = {_VARIANT}({{{', '.join(texts)}}})")
    elif VARIANT in arguments:
        flattened.chunks.append(f"LEVELS = {_VARIANT}({{}})")
    flattened.replace(statement)
    plain = ast.FunctionDef(**{**vars(statement), "decorator_list": []})
    name = flattened.flat(Definition(definition.module, definition.name, plain))
    enter = ["LEVELS.enter()"] if VARIANT in arguments else []
    given = ", ".join(f"{key}={value}" for key, value in arguments.items())
    flattened.chunks.append("\n".join(["limit_threads()", *enter, f"{name}({given})"]))


def _acts(statement: ast.stmt) -> bool:
    """Tell whether a top-level statement acts without binding a name, such as ``os.environ["NAME"] = "1"``."""
    if isinstance(statement, ast.Expr):
        return not isinstance(statement.value, ast.Constant)  # a docstring
    return isinstance(statement, (ast.Assign, ast.AugAssign)) and not any(bound_names(statement))


def _axes(module: Module, function: ast.FunctionDef) -> Iterator[tuple[str, tuple[Module, ast.Call]]]:
    """Yield name -> declaration of each axis of the decorators, with the module of the declaration."""
    for decorator in function.decorator_list:
        if not isinstance(decorator, ast.Call) or name_of(decorator.func) != "across":
            continue
        for argument in decorator.args:
            there, found = module, argument
            while True:
                if isinstance(found, ast.Call) and isinstance(found.func, ast.Attribute) and found.func.attr == "only":
                    found = found.func.value
                elif isinstance(found, (ast.Name, ast.Attribute)):
                    binding = resolve(there, found)
                    if not isinstance(binding, Definition) or not isinstance(binding.statement, ast.Assign):
                        break
                    there, found = binding.module, binding.statement.value
                else:
                    break
            if isinstance(found, ast.Call) and name_of(found.func) == "Axis" and _names(found):
                yield _names(found), (there, found)


def _level(module: Module, axis: ast.Call, level: str, case: Case) -> tuple[Module, ast.Call]:
    for argument in axis.args[1:]:
        if isinstance(argument, ast.Call) and _names(argument) == level:
            return module, argument
    raise UsageError(f"{case.name}: {module.path}:{axis.lineno} does not name the level {level} in a call of its own")


def _names(call: ast.Call) -> str:
    """Return the text that is the first argument of a call, ``""`` if there is none."""
    first = call.args[0] if call.args else None
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""
