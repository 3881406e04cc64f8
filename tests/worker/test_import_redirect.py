"""Imports redirected to another source tree: paths, finders of editable installations, and leaked packages."""

import json
import os
import socket
import sys
import types
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.fakes.alone import run_alone
from tfbench.imports import hidden_modules, hidden_packages, is_installed, leaked_packages, redirect_imports
from tfbench.protocol import StartZygote
from tfbench.worker import zygote

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def trees(tmp_path, monkeypatch):
    """The working tree, and inside it the tree that replaces it."""
    there, here = tmp_path.resolve(), tmp_path.resolve() / ".tfbench" / "trees" / "abc"
    (here / "src").mkdir(parents=True)
    (there / "src").mkdir()
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    return str(there), str(here)


def test_entries_of_the_path_are_redirected_and_installed_ones_stay(trees):
    there, here = trees
    installed = f"{there}/.venv/lib/python3.11/site-packages"
    links = f"{there}/build/__editable__.mine-1-py3-none-any"
    sys.path[:0] = [f"{there}/src", installed, f"{here}/src", "/elsewhere", links]
    redirect_imports(there, here)
    assert sys.path[:5] == [f"{here}/src", installed, f"{here}/src", "/elsewhere", links]


@pytest.mark.parametrize(
    ("prefix", "path", "installed"),
    [
        ("", "mypkg/core.py", False),  # after `python -m venv .`, or with /usr around /usr/src/app
        ("", "lib/python3.11/site-packages/numpy/__init__.py", True),
        ("..", "../lib/python3/dist-packages/numpy/__init__.py", True),
        (".venv", ".venv/lib/libcudart.so", True),
        (".venv", "mypkg/core.py", False),
    ],
)
def test_an_environment_around_the_working_tree_has_not_installed_it(trees, monkeypatch, prefix, path, installed):
    there, here = trees
    for name in ("prefix", "base_prefix"):
        monkeypatch.setattr(sys, name, os.path.normpath(f"{there}/{prefix}"))
    entry = os.path.normpath(f"{there}/{path}")
    assert is_installed(entry, there) == installed
    sys.path[:] = [entry]
    redirect_imports(there, here)
    assert sys.path == [entry if installed else f"{here}/{path}"]


def editable(monkeypatch, mapping):
    """Adds the finder of an editable installation of these packages; returns its module."""
    module = imported(monkeypatch, "__editable___mine_finder", "/finder.py")
    module.MAPPING = mapping
    sys.meta_path.append(
        type("Finder", (), {"__module__": module.__name__, "find_spec": staticmethod(lambda *a: None)})
    )
    return module


def test_finders_of_editable_installations_are_redirected(trees, monkeypatch):
    there, here = trees
    mapping = {"mine": f"{there}/mine", "other": "/elsewhere/other", "tfbench": f"{there}/tfbench"}
    module = editable(monkeypatch, mapping)
    sys.path.insert(0, f"{there}/src")
    assert redirect_imports(there, here) == [f"{here}/src", here]
    redirected = {"mine": f"{here}/mine", "other": "/elsewhere/other", "tfbench": f"{there}/tfbench"}
    assert redirected == module.MAPPING


def test_started_processes_find_a_package_of_an_editable_installation_by_its_name(trees, monkeypatch):
    there, here = trees
    names = {"mine": "lib/python", "space.part": "src/space/part", "usual": "src/usual"}
    for place in names.values():
        Path(here, place).mkdir(parents=True)
        Path(here, place, "__init__.py").touch()
    editable(monkeypatch, {name: f"{there}/{place}" for name, place in names.items()})
    folders = redirect_imports(there, here)
    text = f"import os, {', '.join(names)}\nfor name in {list(names)}: print(os.path.realpath(eval(name).__file__))"
    shown = run_alone(text, env={"PYTHONPATH": os.pathsep.join(folders)})
    assert shown.split() == [f"{here}/{place}/__init__.py" for place in names.values()]
    assert f"{here}/src/space" not in folders  # whose modules have longer names


def imported(monkeypatch, name, file):
    """Makes a module of this file."""
    module = types.ModuleType(name)
    module.__file__ = str(file)
    monkeypatch.setitem(sys.modules, name, module)
    return module


def test_packages_that_both_trees_have_are_each_sides_own(trees, monkeypatch):
    there, here = trees
    vendored, environment = "vendor/site-packages", "env/lib/python3.12/site-packages"
    for folder in (f"{there}/{vendored}", f"{here}/{vendored}", f"{there}/{environment}"):
        Path(folder).mkdir(parents=True)
    sys.path[:] = [f"{there}/{vendored}", f"{there}/{environment}"]
    assert redirect_imports(there, here) == [f"{here}/{vendored}"]
    assert sys.path == [f"{here}/{vendored}", f"{there}/{environment}"]
    places = {"lent": f"{there}/{vendored}", "own": f"{here}/{vendored}", "far": f"{there}/{environment}"}
    for name, place in places.items():
        imported(monkeypatch, name, f"{place}/{name}.py")
    assert leaked_packages(there, here, here) == ["lent"]


@pytest.mark.parametrize(
    ("name", "file", "leaks"),
    [
        ("ours.deep", "{there}/ours/deep.py", ["ours"]),
        ("theirs", "{here}/theirs.py", []),
        ("far", "/far.py", []),
        ("above", "{there}", []),  # as pytest makes one for a folder above a conftest.py
    ],
)
def test_packages_that_still_come_from_the_working_tree_are_named(trees, monkeypatch, name, file, leaks):
    there, here = trees
    imported(monkeypatch, name, file.format(there=there, here=here))
    assert leaked_packages(there, here, f"{here}/packages/one") == leaks


@pytest.fixture
def install(tmp_path_factory):
    """Installs a distribution with these files into an environment of its own, and returns the folder of its record."""

    def install(name, *files):
        site = tmp_path_factory.mktemp("environment") / "site-packages"
        record = site / f"{name.lower().replace('.', '_')}-1.dist-info"
        record.mkdir(parents=True)
        (record / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        (record / "RECORD").write_text("".join(f"{file},,\n" for file in files))
        for file in files:  # from 3.12 on, Python lists existing files only
            (site / file).parent.mkdir(parents=True, exist_ok=True)
            (site / file).touch()
        return record

    return install


@pytest.mark.parametrize(
    ("installed", "file", "hidden"),
    [
        # A part of a namespace package hides the same installed part alone.
        (("Space.Part", "space/part/__init__.py", "space/single.py"), "space/part/__init__.py", "space.part"),
        (("Space.Part", "space/part/__init__.py", "space/single.py"), "space/single.py", "space.single"),
        (("Space.Part", "space/part/__init__.py", "space/single.py"), "space/other/__init__.py", ""),
        (("Two.Packages", "one/__init__.py", "two.py"), "two.py", "two"),
    ],
)
def test_a_module_of_the_tree_hides_the_installed_one_that_comes_later(trees, install, installed, file, hidden):
    site, path = str(install(*installed).parent), Path(trees[0], file)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    before = hidden_modules()
    sys.path[:0] = [trees[0]]
    sys.path.append(site)
    assert hidden_modules() == before | ({hidden: site} if hidden else {})
    assert hidden_packages([installed[0].replace(".", "-").lower()], hidden_modules()) == [hidden] * bool(hidden)
    assert hidden_packages(["numpy"], hidden_modules()) == []
    sys.path.append(sys.path.pop(0))  # as a file .pth of an editable installation adds it
    assert hidden_modules() == before


@pytest.mark.parametrize(("info", "leaks"), [({}, ["copied"]), ({"editable": True}, [])])
def test_a_copy_that_pip_installed_from_the_working_tree_leaks(trees, monkeypatch, install, info, leaks):
    there, here = trees
    record = install("copied", "copied/__init__.py")
    (record / "direct_url.json").write_text(json.dumps({"url": f"file://{there}", "dir_info": info}))
    monkeypatch.syspath_prepend(str(record.parent))
    module = imported(monkeypatch, "copied", record.parent / "copied/__init__.py")
    assert leaked_packages(there, here, f"{here}/packages/one") == leaks
    module.__file__ = f"{here}/copied/__init__.py"
    assert leaked_packages(there, here, f"{here}/packages/one") == []


@pytest.mark.parametrize(
    ("files", "leaks"),
    [
        (["copied/__init__.py"], True),
        (["copied.py"], True),
        (["packages/one/src/copied/__init__.py"], True),
        (["other/copied/__init__.py"], False),
        (["data/copied/notes.txt"], False),
        # A module of a package may be named like an installed one.
        (["src/__init__.py", "src/copied.py"], False),
    ],
)
def test_a_package_that_the_working_tree_has_must_not_be_an_installed_one(
    trees, monkeypatch, tmp_path_factory, files, leaks
):
    there, here = trees
    for file in files:
        Path(there, file).parent.mkdir(parents=True, exist_ok=True)
        Path(there, file).touch()
    imported(monkeypatch, "copied", tmp_path_factory.mktemp("environment") / "site-packages" / "copied" / "__init__.py")
    assert leaked_packages(there, here, f"{here}/packages/one") == (["copied"] if leaks else [])


def test_a_script_may_be_named_like_a_module_of_python_and_no_lazy_module_is_loaded(trees, monkeypatch):
    class Lazy(types.ModuleType):
        def __getattr__(self, name):
            raise AssertionError(f"{name} was read")

    there, here = trees
    Path(there, "types.py").touch()
    monkeypatch.setitem(sys.modules, "lazy_one", Lazy("lazy_one"))
    assert leaked_packages(there, here, here) == []


def test_this_package_may_lie_in_the_working_tree(trees, monkeypatch):
    root = str(ROOT)
    imported(monkeypatch, "__mp_main__", f"{root}/tfbench/worker/__main__.py")
    found = leaked_packages(root, trees[1], trees[1])
    assert not {"tfbench", "__mp_main__"} & set(found)
    assert "tests" in found  # this module is in that package


def test_a_side_that_has_nothing_to_redirect_does_so_all_the_same(tmp_path, monkeypatch):
    """What a redirection leaves in memory makes the steps of a side up to 1% slower or faster."""
    seen = []
    monkeypatch.setattr(zygote.imports, "redirect_imports", lambda *trees: seen.append(trees) or [])
    monkeypatch.setattr(zygote.pytest, "main", lambda *arguments, **options: 0)
    monkeypatch.setattr(zygote.isolation, "adopt_orphans", lambda: None)
    monkeypatch.setattr(zygote, "_own_channel", os.close)
    monkeypatch.setattr(zygote, "Zygote", lambda *arguments: SimpleNamespace(served=True))
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.chdir(tmp_path)
    for trees in (None, ("/there", "/here")):
        ours, theirs = socket.socketpair()
        start = StartZygote(
            root=str(tmp_path), files=(), inifile="", import_mode="importlib", made="", python_path="",
            tree_redirect=trees, channel=theirs.detach(),
        )  # fmt: skip
        zygote.run(start, "", None)
        ours.close()
    assert seen == [(os.devnull, os.devnull), ("/there", "/here")]
