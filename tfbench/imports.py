"""Imports from another source tree than the working tree."""

from __future__ import annotations

import json
import os
import sys
import sysconfig
import tempfile
import types
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from importlib import metadata
from itertools import takewhile
from urllib.parse import unquote, urlsplit

import pytest
from _pytest.config import ConftestImportFailure  # pytest offers it nowhere else

from tfbench.fs import scratch_dir

OWN = "tfbench"
PACKAGE = os.path.dirname(os.path.realpath(__file__))
"""tfbench measures both sides with the same code, even if it lies in the working tree."""


_STRICT = f"{os.sep}__editable__."


def enter(root: str) -> None:
    """Change to a folder, as a shell does. Otherwise ``PWD`` would lead code of another tree to the working tree."""
    os.chdir(root)
    os.environ["PWD"] = root


def redirect_imports(there: str, here: str) -> list[str]:
    """Make imports from ``there``, the working tree, read ``here`` instead.

    Handles the editable installations of setuptools: entries of the path, and finders with a ``MAPPING`` from packages
    to folders. `leaked_packages` finds the others.

    Returns the folders of ``here`` that packages come from. Python processes that this one starts need them in their
    path.
    """
    # A strict editable installation has links to the working tree, which `leaked_packages` follows.
    sys.path[:] = [entry if _STRICT in entry else _moved(entry, there, here) for entry in sys.path]
    folders = [entry for entry in sys.path if is_below(entry, here)]
    for finder in sys.meta_path:
        mapping = getattr(sys.modules.get(getattr(finder, "__module__", "")), "MAPPING", None)
        if isinstance(mapping, dict):
            mapping.update({name: _moved(str(path), there, here) for name, path in mapping.items() if name != OWN})
            own = ((name, str(path)) for name, path in mapping.items() if is_below(str(path), here))
            folders += [_folder_of(*package) for package in own]
    sys.path_importer_cache.clear()
    return list(dict.fromkeys(folders))


def _folder_of(name: str, path: str) -> str:
    """Return a folder from which other processes import this package or module by its name.

    One is made with a link to a package that lies in a folder of another name.
    """
    inner = name.replace(".", os.sep)
    if path.endswith(os.sep + inner) or not os.path.isdir(path):
        return path.removesuffix(inner).rstrip(os.sep)
    folder = tempfile.mkdtemp(dir=scratch_dir())
    link = os.path.join(folder, inner)
    os.makedirs(os.path.dirname(link), exist_ok=True)
    os.symlink(path, link)
    return folder


def leaked_packages(there: str, here: str, root: str) -> list[str]:
    """Return packages that were imported from the working tree nevertheless, without tfbench and installed ones.

    An installed package that the working tree has as well is one of them, such as after ``pip install .`` or from a wheel:
    both sides would import that copy. ``root`` is pytest's root below ``here``.
    """
    leaks, copies, places = set(), _copies(there), _places(there, here, root)
    for name, file in module_files({}):
        package = name.partition(".")[0]
        leaked = _moved(file, there, here) != file
        if not leaked and package != OWN and is_installed(file, there):
            own = name == package and name not in sys.stdlib_module_names
            leaked = package in copies or (own and any(_has(place, package) for place in places))
        # pytest makes a module of each folder above a conftest.py that lies outside of its root.
        if leaked and not is_below(os.path.realpath(file), PACKAGE) and not os.path.isdir(file):
            leaks.add(package)
    return sorted(leaks)


def hidden_modules() -> dict[str, str]:
    """Return the modules that the path finds in a source tree before an installed copy, with the copy's folder.

    Modules of a package are left out, but not those of a namespace package, of which each folder has a part.
    """
    hidden: dict[str, str] = {}
    trees = list(takewhile(lambda entry: not is_installed(entry), sys.path))  # the standard library comes after them
    own = set().union(*map(modules_in, trees)) - {OWN}
    for folder in (entry for entry in sys.path[len(trees) :] if f"{entry}{os.sep}".endswith(_PACKAGES)):
        for name in own & modules_in(folder):
            for module in (module for tree in trees for module in _hidden(tree, folder, name)):
                hidden.setdefault(module, folder)
    return hidden


def _hidden(tree: str, folder: str, name: str) -> Iterator[str]:
    """Yield a module that both folders have, or the modules that it has in both, if it is a namespace package in both."""
    if _has(tree, name):
        yield name
    elif not _has(folder, name):
        ours, theirs = (os.path.join(place, name) for place in (tree, folder))
        for inner in modules_in(ours) & modules_in(theirs) - {""}:
            yield from (f"{name}.{module}" for module in _hidden(ours, theirs, inner))


def modules_in(folder: str) -> set[str]:
    """Return the names that modules in a folder of the path may have; none if it cannot be read."""
    try:
        return {name.partition(".")[0] for name in os.listdir(folder or ".")}
    except OSError:
        return set()


def hidden_packages(packages: Collection[str], hidden: Mapping[str, str]) -> list[str]:
    """Return the modules among the `hidden_modules` that belong to distributions of these names."""
    found = set()
    for folder in set(hidden.values()):
        for package in packages:
            for distribution in metadata.distributions(name=package, path=[folder]):
                for file in distribution.files or ():
                    parts = [part.partition(".")[0] for part in file.parts]
                    names = (".".join(parts[: end + 1]) for end in range(len(parts)))
                    found |= {name for name in names if hidden.get(name) == folder}
    return sorted(found)


def module_files(known: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield the name and file of each imported module that comes from a file, except for the ``known`` modules."""
    for name, module in list(sys.modules.items()):
        if isinstance(module, types.ModuleType) and known.get(name) is not module:
            # Attribute access would load a lazy module here in the zygote, on one side only.
            file = object.__getattribute__(module, "__dict__").get("__file__")
            if isinstance(file, str):
                yield name, file


def installed_modules(known: Mapping[str, object]) -> set[str]:
    """Return the top-level names of the installed modules that are imported and not ``known``, without the standard library."""
    installed = {name.partition(".")[0] for name, file in module_files(known) if is_installed(file)}
    return installed - sys.stdlib_module_names


def _copies(there: str) -> set[str]:
    """Return the packages of which an installed distribution holds a copy from this folder.

    pip and uv record where a distribution came from (PEP 610).
    """
    copies: set[str] = set()
    for distribution in metadata.distributions():
        try:
            origin = json.loads(distribution.read_text("direct_url.json") or "{}")
            folder = os.path.realpath(unquote(urlsplit(origin.get("url", "")).path))
            copied = not origin.get("dir_info", {}).get("editable")
        except (OSError, ValueError, AttributeError):
            continue
        if origin and copied and is_below(folder, there):
            copies |= {file.parts[0].removesuffix(".py") for file in distribution.files or ()}
    return copies - {OWN}


def _places(there: str, here: str, root: str) -> list[str]:
    """Return the folders of a tree that its packages may lie in: pytest's root and those above it, each with its ``src``.

    A folder that is a package itself is none of them: its modules have longer names.
    """
    folders = [there]
    if is_below(root, here):
        for name in os.path.relpath(root, here).split(os.sep):
            folders.append(os.path.join(folders[-1], name))
    places = [place for folder in folders for place in (folder, os.path.join(folder, "src"))]
    return [place for place in places if not os.path.isfile(os.path.join(place, "__init__.py"))]


def _has(place: str, package: str) -> bool:
    return any(os.path.isfile(os.path.join(place, package + end)) for end in (f"{os.sep}__init__.py", ".py"))


def _moved(path: str, there: str, here: str) -> str:
    if is_installed(path, there) and not _is_in_both(path, there, here):
        return path  # most are, and to follow the links of each takes 0.2 s in all
    real = os.path.realpath(path)
    if not is_below(real, there) or is_below(real, here):
        return path
    return os.path.join(here, os.path.relpath(real, there))


def _is_in_both(path: str, there: str, here: str) -> bool:
    """Return whether a folder of packages is no environment, but a part of both source trees, such as ``vendor/site-packages``.

    git has extracted the other tree, which holds no environment.
    """
    places = (f"{path}{os.sep}".find(name) + len(name) - 1 for name in _PACKAGES if name in f"{path}{os.sep}")
    folder = path[: next(places, 0)]
    if not is_below(folder, there) or is_below(folder, here):
        return False
    return os.path.isdir(os.path.join(here, os.path.relpath(folder, there)))


def is_below(path: str, folder: str) -> bool:
    """Return whether a path is a folder or lies below it."""
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


_LIBRARY = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib"))
_PACKAGES = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))


def is_installed(path: str, tree: str = "") -> bool:
    """Return whether the path is in an environment, which often lies inside the working tree.

    ``tree`` is the working tree, ``""`` if unknown. An environment around it, such as ``/usr`` around ``/usr/src/app``,
    holds code of users as well, so only its folders of packages count.
    """
    if any(name in f"{path}{os.sep}" for name in _PACKAGES) or any(is_below(path, folder) for folder in _LIBRARY):
        return True
    prefixes = {sys.prefix, sys.base_prefix} if tree else ()
    around = (prefix for prefix in prefixes if is_below(path, prefix))
    return any(not is_below(tree, prefix) and not is_below(tree, os.path.realpath(prefix)) for prefix in around)


class FolderByFolder:
    """Hooks of pytest by which a conftest.py that cannot be imported fails its own folder, and no other folder."""

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_load_initial_conftests(self) -> Iterator[None]:
        with suppress(ConftestImportFailure):  # collecting the folder imports it again, and fails
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Iterator[None]:
        report = yield
        if isinstance(collector, pytest.Session):
            collector._notfound.clear()  # files of such a folder, for which pytest would end
        return report
