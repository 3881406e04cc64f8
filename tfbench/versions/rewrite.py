"""Rewrite the code of a benchmark for a file that stands alone."""

from __future__ import annotations

import ast
import builtins
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import pytest

from tfbench.errors import UsageError
from tfbench.fs import read_text
from tfbench.model import CACHE, Case
from tfbench.suite.axes import Variant

# Read the modules of a project as syntax trees: what each top-level name is bound to, and where imports lead


AVAILABLE = {"tensorflow", "numpy", "keras", *sys.stdlib_module_names}
"""Packages that a file for a bug report may import. Keras comes with TensorFlow."""
BENCH = "bench"
TFBENCH, PYTEST = "tfbench", "pytest"
_INSTALLED = ("site-packages", "dist-packages")


@dataclass(frozen=True)
class Imported:
    """A name that is bound by an import from outside the project."""

    module: str
    attribute: str = ""
    """``""`` if the name is the module itself."""

    @property
    def top(self) -> str:
        return self.module.partition(".")[0]

    def statement(self, name: str) -> str:
        """Return the statement that binds this name."""
        if not self.attribute:
            return f"import {self.module}" + (f" as {name}" if name != self.module else "")
        alias = f" as {name}" if name != self.attribute else ""
        return f"from {self.module} import {self.attribute}{alias}"


@dataclass(frozen=True)
class Definition:
    """A name that a top-level statement of a module defines."""

    module: Module
    name: str
    statement: ast.stmt


Binding = Imported | Definition
"""What a name means, or `Module` if it is a module of the project."""


@dataclass(eq=False)
class Module:
    """A module of the project. ``search`` has the folders that the project's modules are imported from."""

    path: Path
    search: Sequence[Path]
    known: dict[Path, Module] = field(default_factory=dict)
    """All modules that were read, by path."""

    def __post_init__(self) -> None:
        self.known[self.path] = self

    @cached_property
    def text(self) -> str:
        return read_text(self.path)

    @cached_property
    def tree(self) -> ast.Module:
        try:
            return ast.parse(self.text)
        except SyntaxError as error:
            raise UsageError(f"{self.path}: {error}") from None

    @cached_property
    def statements(self) -> dict[str, ast.stmt]:
        """Name -> the last top-level statement that binds it."""
        return {name: statement for statement in self.tree.body for name in bound_names(statement)}

    def find(self, name: str) -> Binding | Module | None:
        """Return what a top-level name means, ``None`` if the module does not bind it.

        Raises `UsageError` if the name comes from an import that cannot be followed, or is bound by several statements.
        """
        if (statement := self.statements.get(name)) is None:
            self._refuse_stars(name)
            return None
        if len(bindings := [each for each in self.tree.body if _binds(each, name)]) > 1:
            lines = ", ".join(str(each.lineno) for each in bindings)
            raise UsageError(
                f"{self.path}:{statement.lineno}: {name} is bound in the lines {lines}; give each a name of its own"
            )
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                if name == (alias.asname or alias.name.partition(".")[0]):
                    return self._imported(alias.name if alias.asname else name, statement)
        if isinstance(statement, ast.ImportFrom):
            alias = next(alias for alias in statement.names if name == (alias.asname or alias.name))
            return self._imported_from(statement, alias.name)
        return Definition(self, name, statement)

    def _refuse_stars(self, name: str) -> None:
        """Refuse a name that may come from ``from … import *``."""
        stars = [node for node in self.tree.body if isinstance(node, ast.ImportFrom) and node.names[0].name == "*"]
        if stars and not hasattr(builtins, name):
            raise UsageError(f"{self.path}:{stars[0].lineno}: import {name} by its name instead of *")

    def _imported(self, name: str, statement: ast.stmt) -> Imported | Module:
        if name.partition(".")[0] in (*AVAILABLE, TFBENCH, PYTEST):
            return Imported(name)
        if (file := _file([self.path.parent, *self.search], name)) is None:
            raise _foreign(self.path, statement, name)
        return self._read(file)

    def _imported_from(self, statement: ast.ImportFrom, name: str) -> Binding | Module:
        if not statement.level and (statement.module or "").partition(".")[0] in (*AVAILABLE, TFBENCH, PYTEST):
            return Imported(statement.module or "", name)
        folder = self.path.parent
        for _ in range(statement.level - 1):
            folder = folder.parent
        bases = [folder] if statement.level else [self.path.parent, *self.search]
        if file := _file(bases, f"{statement.module or ''}.{name}".strip(".")):
            return self._read(file)
        module = _file(bases, statement.module or "")
        if module is None:
            raise _foreign(self.path, statement, statement.module or name)
        binding = self._read(module).find(name)
        if binding is None:
            raise UsageError(f"{self.path}:{statement.lineno}: {module} does not define {name}")
        return binding

    def attribute(self, name: str) -> Binding | Module | None:
        """Return what ``module.name`` means."""
        if (binding := self.find(name)) is not None:
            return binding
        file = _file([self.path.parent], name) if self.path.name == "__init__.py" else None
        return self._read(file) if file else None

    def _read(self, path: Path) -> Module:
        return self.known.get(path) or Module(path, self.search, self.known)


def _foreign(path: Path, statement: ast.stmt, name: str) -> UsageError:
    return UsageError(
        f"{path}:{statement.lineno}: it needs {name}, and the file may need only TensorFlow, NumPy and the standard library"
    )


def _file(bases: Sequence[Path], name: str) -> Path | None:
    """Return the file of a module below one of these folders."""
    relative = Path(*name.split(".")) if name else Path()
    for base in bases:
        if any(part in _INSTALLED for part in base.parts):
            continue
        for place in ((base / relative).with_suffix(".py") if name else None, base / relative / "__init__.py"):
            if place is not None and place.is_file():
                return place.resolve()
        if name and (base / relative).is_dir() and any((base / relative).glob("*.py")):
            return None  # a namespace package: its modules are found by their own names
    return None


def bound_names(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement binds in its scope, without those of nested functions and classes."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield statement.name
        return
    stack: list[ast.AST] = [statement]
    while stack:
        node = stack.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
            continue
        if isinstance(node, (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            continue
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
            yield node.id
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield node.name
        stack += ast.iter_child_nodes(node)


def _binds(statement: ast.stmt, name: str) -> bool:
    """Tell whether a statement gives a name a value. Imports are left out, as several may bind the same package."""
    declares = isinstance(statement, ast.AnnAssign) and statement.value is None
    return not declares and not isinstance(statement, (ast.Import, ast.ImportFrom)) and name in bound_names(statement)


# Extract a case from its project: the benchmark with its levels, and everything that it needs, in one namespace


VARIANT, SHARED, FOLDER = "variant", "shared", "tmp_path"
_VARIANT = "PlainVariant"
"""Replaces tfbench's class, see `tfbench.versions.standalone`."""
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
    """Return the code of a case. Raises `UsageError`, with the place, if the case cannot be extracted.

    Args:
        search: Folders that the project's modules are imported from.
        taken: Names that the code must not define.
        given: Name -> import statement that stands before the code.
    """
    path = Path(inspect.getfile(inspect.unwrap(function.function))).resolve()
    if function.cls is not None:
        raise UsageError(f"{case.name} is a method; a repro needs a benchmark that is a function of its module")
    module = Module(path, search)
    definition = module.find(function.originalname)
    if not isinstance(definition, Definition) or not isinstance(definition.statement, ast.FunctionDef):
        raise UsageError(f"{path}: {function.originalname} is not defined there by `def`")
    arguments = _arguments(function, case)
    _refuse_wrapped(function, definition.statement, path)
    # Which helpers of a level are needed, and which names local ones hide, is known only when all that is needed is known.
    helpers: frozenset[str] = frozenset({_SETUP})
    hidden: set[str] = set()
    while True:
        free = {name: statement for name, statement in given.items() if name not in hidden}
        flattened = Flattened({*taken, *hidden}, free, helpers)
        _fill(flattened, definition, case, arguments)
        if flattened.attributes <= helpers and flattened.hidden <= hidden:
            break
        helpers, hidden = helpers | flattened.attributes, hidden | flattened.hidden
    flattened.refuse_changed()
    code = "\n\n\n".join(flattened.chunks)
    return Extract(tuple(sorted(flattened.imports)), code, frozenset(_words(code)))


def _refuse_wrapped(function: pytest.Function, statement: ast.FunctionDef, path: Path) -> None:
    """Refuse a benchmark that a decorator has replaced, because the file has the function without its decorators."""
    first = min([statement.lineno, *(decorator.lineno for decorator in statement.decorator_list)])
    code = getattr(function.function, "__code__", None)
    if code is None or (code.co_name, code.co_firstlineno) != (statement.name, first):
        raise UsageError(f"{path}:{first}: a decorator wraps {statement.name}, which the file would lack; take it off")


def _words(code: str) -> Iterator[str]:
    return (node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name))


def _arguments(function: pytest.Function, case: Case) -> dict[str, str]:
    """Return argument of the benchmark -> expression."""
    callspec = getattr(function, "callspec", None)
    parameters = {} if callspec is None else callspec.params
    names = {}
    arguments = inspect.signature(inspect.unwrap(function.function)).parameters
    foreign = set(_foreign_fixtures(function))
    if implicit := sorted(foreign.difference(arguments)):
        name = (
            implicit[0].removeprefix("_xunit_").partition("_fixture")[0]
        )  # setup_module and its like are fixtures to pytest
        raise UsageError(f"{case.name} runs with the fixture {name}, which a repro would lack; take it off")
    for name in arguments:
        value = parameters.get(name)
        if name in parameters and name not in foreign and not isinstance(value, Variant):
            names[name] = repr(value)
            try:
                same = ast.literal_eval(names[name]) == value
            except (ValueError, SyntaxError):
                same = False
            if not same:
                raise UsageError(f"{case.name}: the parameter {name} is no plain value, but {names[name][:80]}")
        elif name in _FIXTURES and name not in foreign:
            names[name] = _FIXTURES[name]
        else:
            raise UsageError(
                f"{case.name} takes the fixture {name}; a repro needs a benchmark that takes only {', '.join(_FIXTURES)}"
            )
    return names


def _foreign_fixtures(function: pytest.Function) -> Iterator[str]:
    """Yield the names of the fixtures that the project defines and the benchmark runs with, ``setup_function`` included."""
    for name in function._fixtureinfo.initialnames:
        for fixture in function._fixtureinfo.name2fixturedefs.get(name, ()):
            module = getattr(fixture.func, "__module__", "")
            file = getattr(sys.modules.get(module), "__file__", None) or ""
            of_pytest = module.partition(".")[0] in ("_pytest", TFBENCH)  # pytest makes fixtures of plain parameters
            if name.startswith("_xunit") or not (of_pytest or any(part in _INSTALLED for part in Path(file).parts)):
                yield name


def _fill(flattened: Flattened, definition: Definition, case: Case, arguments: Mapping[str, str]) -> None:
    statement = definition.statement
    assert isinstance(statement, ast.FunctionDef)
    flattened.act(definition.module)
    if case.variant and VARIANT in arguments:
        axes = dict(_axes(definition.module, statement))
        levels = []
        for axis, level in case.variant:
            if axis not in axes:
                raise UsageError(f"{case.name}: its axis {axis} is not declared as NAME = Axis({axis!r}, Level(…), …)")
            levels.append((axis, *_level(*axes[axis], level, case)))
            flattened.act(axes[axis][0])
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
        # A docstring does nothing, and the file needs no path to the project's modules.
        return not (isinstance(statement.value, ast.Constant) or ast.unparse(statement).startswith("sys.path."))
    return isinstance(statement, (ast.Assign, ast.AugAssign)) and not any(bound_names(statement))


def _axes(module: Module, function: ast.FunctionDef) -> Iterator[tuple[str, tuple[Module, ast.Call]]]:
    """Yield name -> declaration of each axis of the decorators, with the module of the declaration."""
    for decorator in function.decorator_list:
        if not isinstance(decorator, ast.Call) or name_of(decorator.func) != "across":
            continue
        for argument in decorator.args:
            there, definition = module, argument
            while True:
                if (
                    isinstance(definition, ast.Call)
                    and isinstance(definition.func, ast.Attribute)
                    and definition.func.attr == "only"
                ):
                    definition = definition.func.value
                elif isinstance(definition, (ast.Name, ast.Attribute)):
                    binding = resolve(there, definition)
                    if not isinstance(binding, Definition) or not isinstance(binding.statement, ast.Assign):
                        break
                    there, definition = binding.module, binding.statement.value
                else:
                    break
            if isinstance(definition, ast.Call) and name_of(definition.func) == "Axis" and _names(definition):
                yield _names(definition), (there, definition)


def _level(module: Module, axis: ast.Call, level: str, case: Case) -> tuple[Module, ast.Call]:
    for argument in axis.args[1:]:
        if isinstance(argument, ast.Call) and _names(argument) == level:
            return module, argument
    raise UsageError(f"{case.name}: {module.path}:{axis.lineno} does not name the level {level} in a call of its own")


def _names(call: ast.Call) -> str:
    """Return the text that is the first argument of a call, ``""`` if there is none."""
    first = call.args[0] if call.args else None
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""


# Rewrite definitions of several modules into one namespace, without tfbench and pytest


LEVEL = "PlainLevel"
"""Replaces tfbench's class of this name, see `tfbench.versions.standalone`."""
_ONCE = "once"
_DROPPED = ("requires", "env")
"""Keywords of a level that the race has dealt with."""
_BLOCKS = ast.For, ast.While, ast.If, ast.With, ast.Try, ast.Delete
_OF_A_FILE = ("__file__", "__package__", "__path__", "__spec__", "__loader__")
"""Names that mean another place in the extracted file."""
_Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def _is_main(statement: ast.stmt) -> bool:
    """Whether a statement is ``if __name__ == …:``, whose block no import runs."""
    parts = ast.walk(statement.test) if isinstance(statement, ast.If) else ()
    return any(isinstance(part, ast.Name) and part.id == "__name__" for part in parts)


def name_of(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def resolve(module: Module, node: ast.expr) -> Definition | Imported | Module | None:
    """Return what ``NAME`` or ``module.NAME`` means."""
    if isinstance(node, ast.Name):
        return module.find(node.id)
    if isinstance(node, ast.Attribute):
        base = resolve(module, node.value)
        if isinstance(base, Module):
            return base.attribute(node.attr)
    return None


@dataclass
class Flattened:
    """Definitions of several modules under names of one namespace, each after those that it needs."""

    taken: set[str]
    """Names that belong to the file already."""
    given: dict[str, str]
    """Name -> import statement that the file has already."""
    helpers: frozenset[str]
    """Helpers of levels that are needed."""
    chunks: list[str] = field(default_factory=list)
    imports: set[str] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)
    """Every attribute that the code reads."""
    hidden: set[str] = field(default_factory=set)
    """Names of the one namespace that local names hide where the code means the former."""
    _names: dict[tuple[object, ...], str] = field(default_factory=dict)
    _done: set[int] = field(default_factory=set)
    _acted: list[Module] = field(default_factory=list)

    def flat(self, definition: Definition) -> str:
        """Return the name of a definition, and add it with what it needs.

        Raises `UsageError` if it needs something that the file cannot have.
        """
        name = self.own_name(definition.module, definition.name)
        self.add(definition.module, definition.statement)
        return name

    def imported(self, name_of_import: Imported, wanted: str) -> str:
        """Return the name of an import, if possible the one that the module uses."""
        if self.given.get(wanted) == name_of_import.statement(wanted):
            return wanted
        name = self._name(("import", name_of_import.module, name_of_import.attribute), wanted)
        self.imports.add(name_of_import.statement(name))
        return name

    def _name(self, key: tuple[object, ...], wanted: str) -> str:
        if key not in self._names:
            name = wanted
            while name in self.taken:
                name += "_"
            self.taken.add(name)
            self._names[key] = name
        return self._names[key]

    def replace(self, statement: ast.stmt) -> None:
        """Note that another statement stands for this one."""
        self._done.add(id(statement))

    def add(self, module: Module, statement: ast.stmt) -> None:
        """Add a top-level statement of a module, once, after what it needs and after what its module does on import."""
        self.act(module)
        if id(statement) in self._done:
            return
        self._done.add(id(statement))
        for name in bound_names(statement):
            self.own_name(module, name)
        original = next((part for part in module.tree.body if part.lineno == statement.lineno), statement)
        comment = _comment_above(module, original)
        self.chunks.append(comment + ast.unparse(ast.fix_missing_locations(self.rewritten(module, statement))))

    def act(self, module: Module) -> None:
        """Add the statements that a module runs on import without binding a name, once."""
        if module not in self._acted:
            self._acted.append(module)
            for effect in filter(_acts, module.tree.body):
                self.add(module, effect)

    def refuse_changed(self) -> None:
        """Refuse a variable that a loop, branch or block of its module may change, because the file lacks that statement."""
        for module in self._acted:
            for statement in module.tree.body:
                if isinstance(statement, _BLOCKS) and id(statement) not in self._done and not _is_main(statement):
                    named = {part.id for part in ast.walk(statement) if isinstance(part, ast.Name)}
                    for name in sorted(named):
                        assigned = module.statements.get(name)
                        if isinstance(assigned, (ast.Assign, ast.AnnAssign)) and id(assigned) in self._done:
                            text = f"a block at the top of the file may change {name}; define {name} in one statement"
                            raise UsageError(f"{module.path}:{statement.lineno}: {text}")

    def own_name(self, module: Module, name: str) -> str:
        return self._name((module.path, name), name)

    def rewritten(self, module: Module, node: ast.AST) -> ast.AST:
        """Return a copy of a node with names of the one namespace, after adding what it needs."""
        copy = ast.parse(ast.unparse(ast.fix_missing_locations(node))).body[0]
        inner: ast.AST = copy.value if isinstance(copy, ast.Expr) and isinstance(node, ast.expr) else copy
        made: ast.AST = _Rewriter(self, module, getattr(node, "lineno", 0)).visit(inner)
        return made


def _comment_above(module: Module, statement: ast.stmt) -> str:
    lines = module.text.splitlines()
    first = min([statement.lineno, *(decorator.lineno for decorator in getattr(statement, "decorator_list", ()))]) - 1
    begin = first
    while begin > 0 and lines[begin - 1].startswith("#"):
        begin -= 1
    return "".join(f"{line}\n" for line in lines[begin:first])


class _Rewriter(ast.NodeTransformer):
    """Replaces names of a module's top level, and what belongs to tfbench and pytest."""

    def __init__(self, flattened: Flattened, module: Module, line: int) -> None:
        self._flattened = flattened
        self._module = module
        self._line = line
        self._locals: list[set[str]] = []

    def _is_local(self, name: str) -> bool:
        return any(name in scope for scope in self._locals)

    def _refuse(self, what: str) -> UsageError:
        return UsageError(f"{self._module.path}:{self._line}: {what}, which a file without tfbench cannot have")

    # Names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if self._is_local(node.id):
            return node
        binding = self._module.find(node.id)
        if binding is None:
            if node.id in _OF_A_FILE:
                raise self._refuse(f"it uses {node.id}")
            return node  # a builtin
        return ast.Name(self._flat(binding, node.id), node.ctx)

    def _flat(self, binding: Definition | Imported | Module, name: str) -> str:
        if isinstance(binding, Module):
            raise self._refuse(f"it uses the module {name} as a value")
        if isinstance(binding, Imported) and binding.top == TFBENCH and binding.attribute == "Level":
            return LEVEL
        if isinstance(binding, Imported) and binding.top not in AVAILABLE:
            raise self._refuse(f"it uses {'.'.join(filter(None, (binding.module, binding.attribute)))}")
        added = self._flattened
        flat = added.flat(binding) if isinstance(binding, Definition) else added.imported(binding, name)
        if self._is_local(flat):
            added.hidden.add(flat)
        return flat

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        root: ast.expr = node
        while isinstance(root, ast.Attribute):
            root = root.value
        if isinstance(root, ast.Name) and not self._is_local(root.id):
            binding = resolve(self._module, node)
            if isinstance(binding, (Definition, Imported)):
                return ast.Name(self._flat(binding, node.attr), ast.Load())
            base = resolve(self._module, node.value)
            if (isinstance(base, Module) and binding is None) or (
                isinstance(base, Imported) and base.top in (TFBENCH, PYTEST)
            ):
                raise self._refuse(f"it uses {ast.unparse(node)}")
        self._flattened.attributes.add(node.attr)
        return self.generic_visit(node)

    # Calls of fixtures, of levels and of pytest

    def visit_Call(self, node: ast.Call) -> ast.AST:
        func = node.func
        if isinstance(func, ast.Name) and func.id == BENCH and self._is_local(BENCH):
            if any(keyword.arg == CACHE for keyword in node.keywords):
                raise self._refuse(f"it uses bench({CACHE}=…)")
            node.keywords = []  # amounts of work and contracts
        elif isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.value.id == BENCH:
            if func.attr != _ONCE:
                raise self._refuse(f"it uses bench.{func.attr}")
            node.keywords = []
        elif not self._locals_have(func):
            binding = resolve(self._module, func)
            if isinstance(binding, Imported) and (binding.top, binding.attribute) == (TFBENCH, "Level"):
                kept = {*self._flattened.helpers, None}  # None: a dictionary of keywords
                node.keywords = [
                    keyword for keyword in node.keywords if keyword.arg in kept and keyword.arg not in _DROPPED
                ]
            base = resolve(self._module, func.value) if isinstance(func, ast.Attribute) else None
            if isinstance(base, Imported) and base.top == PYTEST and name_of(func) == "skip":
                node.func = ast.parse("sys.exit", mode="eval").body
                node.args = [self.visit(argument) for argument in node.args]
                return node
        return self.generic_visit(node)

    def _locals_have(self, func: ast.expr) -> bool:
        while isinstance(func, ast.Attribute):
            func = func.value
        return not isinstance(func, ast.Name) or self._is_local(func.id)

    # Scopes

    def _visit_scope(self, node: _Scope) -> ast.AST:
        arguments = node.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        names = {parameter.arg for parameter in (*every, arguments.vararg, arguments.kwarg) if parameter is not None}
        for statement in () if isinstance(node, ast.Lambda) else node.body:
            names |= set(bound_names(statement))
        declared = {name for part in ast.walk(node) if isinstance(part, ast.Global) for name in part.names}
        arguments.defaults = [self.visit(default) for default in arguments.defaults]
        arguments.kw_defaults = [default and self.visit(default) for default in arguments.kw_defaults]
        if not isinstance(node, ast.Lambda):
            node.decorator_list = [self.visit(decorator) for decorator in node.decorator_list]
            for parameter in (*every, *filter(None, (arguments.vararg, arguments.kwarg))):
                parameter.annotation = None  # may name what the file does not have
            node.returns = None
            if not self._locals and self._module.find(node.name) is not None:
                node.name = self._flattened.own_name(self._module, node.name)
        names |= {part.target.id for part in ast.walk(node) if isinstance(part, ast.NamedExpr)}
        self._locals.append(names - declared)
        if isinstance(node, ast.Lambda):
            node.body = self.visit(node.body)
        else:
            node.body = [self.visit(inner_statement) for inner_statement in node.body]
        self._locals.pop()
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = _visit_scope

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        if not self._locals:
            node.name = self._flattened.own_name(self._module, node.name)
        self._locals.append(set())  # its functions are methods, and no names of the module
        made = self.generic_visit(node)
        self._locals.pop()
        return made

    def _visit_comprehension(self, node: ast.expr) -> ast.AST:
        names = (part for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store))
        self._locals.append({name.id for name in names})
        made = self.generic_visit(node)
        self._locals.pop()
        return made

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _visit_comprehension

    def visit_Import(self, node: ast.Import) -> ast.AST:
        return self._checked(node, [alias.name for alias in node.names])

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        return self._checked(node, ["." if node.level else node.module or ""])

    def _checked(self, node: ast.Import | ast.ImportFrom, names: list[str]) -> ast.AST:
        for name in names:
            if name.partition(".")[0] not in AVAILABLE:
                raise self._refuse(f"it has `{ast.unparse(node)}` inside a function")
        return node
