"""Rewrite definitions of several modules into one namespace, without tfbench and pytest."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from tfbench.errors import UsageError
from tfbench.versions.repro.modules import AVAILABLE, PYTEST, TFBENCH, Definition, Imported, Module, bound_names

BENCH = "bench"
LEVEL = "PlainLevel"
"""Replaces tfbench's class of this name, see `tfbench.worker.standalone`."""
_ONCE = "once"
_DROPPED = ("requires", "env")
"""Keywords of a level that the race has dealt with."""
_Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


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
    _names: dict[tuple[object, ...], str] = field(default_factory=dict)
    _done: set[int] = field(default_factory=set)

    def flat(self, found: Definition) -> str:
        """Return the name of a definition, and add it with what it needs.

        Raises:
            UsageError: It needs something that the file cannot have.
        """
        name = self._name((found.module.path, found.name), found.name)
        self.add(found.module, found.statement)
        return name

    def imported(self, found: Imported, wanted: str) -> str:
        """Return the name of an import, if possible the one that the module uses."""
        if self.given.get(wanted) == found.statement(wanted):
            return wanted
        name = self._name(("import", found.module, found.attribute), wanted)
        self.imports.add(found.statement(name))
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
        """Add a top-level statement of a module, once, after what it needs."""
        if id(statement) in self._done:
            return
        self._done.add(id(statement))
        for name in bound_names(statement):
            self._name((module.path, name), name)
        original = next((one for one in module.tree.body if getattr(one, "lineno", 0) == statement.lineno), statement)
        comment = _comment_above(module, original)
        self.chunks.append(comment + ast.unparse(ast.fix_missing_locations(self.rewritten(module, statement))))

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
    first = min([statement.lineno, *(one.lineno for one in getattr(statement, "decorator_list", ()))]) - 1
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
            return node  # a builtin
        return ast.Name(self._flat(binding, node.id), node.ctx)

    def _flat(self, binding: Definition | Imported | Module, name: str) -> str:
        if isinstance(binding, Module):
            raise self._refuse(f"it uses the module {name} as a value")
        if isinstance(binding, Definition):
            return self._flattened.flat(binding)
        if binding.top == TFBENCH and binding.attribute == "Level":
            return LEVEL
        if binding.top not in AVAILABLE:
            raise self._refuse(f"it uses {binding.module}{f'.{binding.attribute}' * bool(binding.attribute)}")
        return self._flattened.imported(binding, name)

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
            node.keywords = []  # amounts of work and contracts
        elif isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.value.id == BENCH:
            if func.attr != _ONCE:
                raise self._refuse(f"it uses bench.{func.attr}")
            node.keywords = []
        elif not self._locals_have(func):
            binding = resolve(self._module, func)
            if isinstance(binding, Imported) and (binding.top, binding.attribute) == (TFBENCH, "Level"):
                kept = {*self._flattened.helpers, None}  # None: a dictionary of keywords
                node.keywords = [one for one in node.keywords if one.arg in kept and one.arg not in _DROPPED]
            base = resolve(self._module, func.value) if isinstance(func, ast.Attribute) else None
            if isinstance(base, Imported) and base.top == PYTEST and name_of(func) == "skip":
                node.func = ast.parse("sys.exit", mode="eval").body
                node.args = [self.visit(one) for one in node.args]
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
        names = {one.arg for one in (*every, arguments.vararg, arguments.kwarg) if one is not None}
        body = [node.body] if isinstance(node, ast.Lambda) else node.body
        for statement in body if not isinstance(node, ast.Lambda) else ():
            names |= set(bound_names(statement))  # type: ignore[arg-type]
        declared = {name for one in ast.walk(node) if isinstance(one, ast.Global) for name in one.names}
        arguments.defaults = [self.visit(one) for one in arguments.defaults]
        arguments.kw_defaults = [one and self.visit(one) for one in arguments.kw_defaults]
        if not isinstance(node, ast.Lambda):
            node.decorator_list = [self.visit(one) for one in node.decorator_list]
            for one in (*every, *filter(None, (arguments.vararg, arguments.kwarg))):
                one.annotation = None  # may name what the file does not have
            node.returns = None
            if not self._locals and (binding := self._module.find(node.name)) is not None:
                assert isinstance(binding, Definition)
                node.name = self._flattened.own_name(self._module, node.name)
        self._locals.append((names | _named(node)) - declared)
        if isinstance(node, ast.Lambda):
            node.body = self.visit(node.body)
        else:
            node.body = [self.visit(one) for one in node.body]
        self._locals.pop()
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._visit_scope(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._visit_scope(node)

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return self._visit_scope(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        if not self._locals:
            node.name = self._flattened.own_name(self._module, node.name)
        return self.generic_visit(node)

    def _visit_comprehension(self, node: ast.expr) -> ast.AST:
        stored = (one for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store))
        self._locals.append({one.id for one in stored})
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


def _named(node: ast.AST) -> set[str]:
    """Return the names that ``:=`` binds inside."""
    return {one.target.id for one in ast.walk(node) if isinstance(one, ast.NamedExpr)}
