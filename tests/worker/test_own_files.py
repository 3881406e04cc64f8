"""Files of a source tree that a process reads, and the native code that it loads, in real processes."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.alone import run_alone
from tests.fakes.libraries import library
from tfbench.worker import own_files
from tfbench.worker.own_files import OwnFiles

LOAD = "import ctypes, json, sys; from tfbench.worker.own_files import OwnFiles; "


@pytest.fixture
def trees(tmp_path):
    """The working tree, and below it the tree that replaces it."""
    there, here = tmp_path / "work", tmp_path / "work" / ".tfbench" / "trees" / "abc"
    for tree in (there, here):
        (tree / "data").mkdir(parents=True)
        (tree / "data" / "a.txt").write_text("a")
        (tree / "data" / "b.txt").write_text("b")
    return there, here


def loaded(text: str, *arguments: object) -> str:
    """Run a program whose arguments are paths, and return what it prints."""
    return run_alone(LOAD + text, *arguments, cwd=Path(__file__).parents[2]).strip()


def watched(tree):
    found = OwnFiles(str(tree))
    found.watch()
    return found


def test_a_file_counts_that_python_or_a_library_opens_or_a_child_process(trees):
    found = watched(trees[1])
    (trees[1] / "data" / "a.txt").read_text()
    assert found.read() == ["data/a.txt"]
    libc = ctypes.CDLL(None)
    os.close(libc.open(os.fsencode(trees[1] / "data" / "b.txt"), os.O_RDONLY))
    assert found.read() == ["data/a.txt", "data/b.txt"]
    found = watched(trees[1])
    subprocess.run([sys.executable, "-c", "open(__import__('sys').argv[1])", trees[1] / "data" / "b.txt"], check=True)
    found.rest()
    (trees[1] / "data" / "a.txt").read_text()
    assert found.read() == ["data/b.txt"]


def test_a_forked_process_that_watches_has_its_own_record(trees):
    found = watched(trees[1])
    (trees[1] / "data" / "a.txt").read_text()
    found.rest()
    if (pid := os.fork()) == 0:
        found.watch()
        (trees[1] / "data" / "b.txt").read_text()
        os._exit(found.read() != ["data/a.txt", "data/b.txt"])
    assert os.waitpid(pid, 0)[1] == 0
    assert found.read() == ["data/a.txt"]


def test_without_watching_or_beyond_the_limit_of_watched_folders_the_files_are_unknown(trees, monkeypatch):
    assert OwnFiles(str(trees[1])).read() is None

    class Limited:
        inotify_init1 = staticmethod(lambda flags: os.open(os.devnull, os.O_RDONLY))
        inotify_add_watch = staticmethod(lambda *arguments: -1)

    monkeypatch.setattr(own_files.ctypes, "CDLL", lambda *arguments, **keywords: Limited)
    monkeypatch.setattr(own_files.ctypes, "get_errno", lambda: 28)
    monkeypatch.setattr(OwnFiles, "_drain", lambda found: None)
    assert watched(trees[1]).read() is None


def test_environments_and_data_of_tfbench_are_no_files_of_the_tree(trees):
    there, _ = trees
    for folder in (".venv/lib", ".git", "__pycache__"):
        (there / folder).mkdir(parents=True)
        (there / folder / "x.txt").write_text("x")
    (there / ".venv" / "pyvenv.cfg").touch()
    found = watched(there)
    for file in there.rglob("*.txt"):
        file.read_text()
    assert found.read() == found.all_files() == ["data/a.txt", "data/b.txt"]


@pytest.mark.parametrize(
    "how",
    ["import models", "__import__('pytest').importorskip('models')", "__import__('pkgutil').resolve_name('models')",
     "__import__('pydoc').locate('models')", "__import__('runpy').run_path(sys.argv[1] + '/models.py')"],
)  # fmt: skip
def test_a_module_counts_however_it_is_imported(trees, how):
    (trees[1] / "models.py").write_text("X = 1\n")
    text = "sys.path.insert(0, sys.argv[1]); found = OwnFiles(sys.argv[1]); found.watch(); "
    assert loaded(f"{text}{how}; print(json.dumps(found.read()))", trees[1]) == '["models.py"]'


def test_installed_files_are_the_same_only_if_they_are_the_very_same_files(tmp_path):
    text = "sys.path.insert(0, sys.argv[1]); import mine; print(OwnFiles('/nowhere').installed())"
    folders = [tmp_path / name / "site-packages" for name in ("one", "two")]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "mine.py").write_text("X = 1\n")
    first = loaded(text, folders[0])
    assert first == loaded(text, folders[0]) != loaded(text, folders[1])
    (folders[0] / "mine.py").write_text("X = 2  # patched\n")
    assert loaded(text, folders[0]) != first


NATIVE = "ctypes.CDLL(sys.argv[3]); print(json.dumps(OwnFiles(sys.argv[1], sys.argv[2]).native()))"


def test_a_library_of_the_side_and_one_of_the_working_tree_are_told_apart(trees):
    there, here = trees
    assert loaded(NATIVE, there, "", library(there / "ops" / "fast.so")) == '{"own": ["ops/fast.so"]}'
    assert loaded(NATIVE, here, there, library(here / "ops" / "own.so")) == '{"own": ["ops/own.so"]}'
    assert loaded(NATIVE, here, there, there / "ops" / "fast.so") == '{"foreign": ["ops/fast.so"]}'
    library(here / "ops" / "fast.so")
    assert loaded(NATIVE, here, there, there / "ops" / "fast.so") == "{}"  # the side has the same one


COMPILED = """
from importlib.machinery import ExtensionFileLoader, ModuleSpec
kind = ExtensionFileLoader if sys.argv[4:] else type("PyxImportLoader", (ExtensionFileLoader,), {})
module = sys.modules["fast"] = type(json)("fast")
module.__file__, module.__spec__ = sys.argv[3], ModuleSpec("fast", kind("fast", sys.argv[3]))
print(json.dumps(OwnFiles(sys.argv[1], sys.argv[2]).native()))
"""


def test_an_extension_that_an_import_compiled_outside_of_the_tree_is_told(trees, tmp_path):
    there, here = trees
    cached = tmp_path / "home" / ".pyxbld" / "fast.so"
    for tree, replaced in ((there, ""), (here, there)):
        assert loaded(COMPILED, tree, replaced, cached) == f'{{"compiled": ["{cached}"]}}'
        assert loaded(COMPILED, tree, replaced, cached, "usual loader") == "{}"
        assert loaded(COMPILED, tree, replaced, tree / "build" / "fast.so") == '{"own": ["build/fast.so"]}'
        assert loaded(COMPILED, tree, replaced, Path("/x/site-packages/fast.so")) == "{}"


def test_a_module_of_the_working_tree_that_git_ignores_is_told_to_be_its_own(trees):
    text = "sys.path.insert(0, sys.argv[1]); import late, pack.early, usual; print(json.dumps("
    for tree in trees:
        (tree / "pack").mkdir()
        for name in ("late.py", "pack/early.py", "usual.py"):
            (tree / name).write_text("X = 1\n")
    there, here = trees
    call = "OwnFiles(*sys.argv[1:3], ('late.py', 'pack')).anew().native()))"
    assert loaded(text + call, there, "") == '{"own": ["late.py", "pack/early.py"]}'
    assert loaded(text + call, here, there) == "{}"


def test_libraries_of_the_system_of_an_environment_and_of_shared_set_ups_do_not_count(trees):
    there, here = trees
    for place in (there / ".venv" / "lib" / "site-packages" / "x.so", there / ".tfbench" / "made" / "x.so"):
        assert loaded(NATIVE, there, "", library(place)) == loaded(NATIVE, here, there, place) == "{}"


def test_a_module_that_is_imported_late_from_the_working_tree_is_foreign(trees):
    there, here = trees
    (there / "late.py").write_text("X = 1\n")
    text = "sys.path.insert(0, sys.argv[2]); import late; print(json.dumps(OwnFiles(*sys.argv[1:3]).native()))"
    assert loaded(text, here, there) == '{"foreign": ["late.py"]}'


def test_what_was_loaded_before_counts_as_what_is_loaded_later(trees):
    there, here = trees
    for folder, name in ((here, "one"), (here, "two"), (here / "again", "one")):
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.py").write_text("X = 1\n")
    text = "sys.path.insert(0, sys.argv[1]); found = OwnFiles(*sys.argv[1:3]); found.watch(); import one; "
    later = "sys.path.insert(0, sys.argv[1] + '/again'); del sys.modules['one']; import one, two; "
    native = "ctypes.CDLL(sys.argv[3]); found.remember(); ctypes.CDLL(sys.argv[4]); "
    libraries = [library(here / "ops" / name) for name in ("a.so", "b.so")]
    shown = loaded(f"{text}{native}{later}print(json.dumps([found.read(), found.native()]))", here, there, *libraries)
    names = '["again/one.py", "one.py", "ops/a.so", "ops/b.so", "two.py"]'
    assert shown == f'[{names}, {{"own": ["ops/a.so", "ops/b.so"]}}]'


@pytest.mark.parametrize(
    "how",
    ["open(file).read()", "exec(open(file, 'rb').read())", "__import__('runpy').run_path(file)",
     "__import__('pathlib').Path(file).read_text()", "__import__('os').open(file, 0)"],
)  # fmt: skip
def test_a_file_of_the_working_tree_that_is_opened_late_is_foreign_if_the_side_has_another_one(trees, how):
    there, here = trees
    (there / "late.py").write_text("X = 1\n")
    text = f"found = OwnFiles(*sys.argv[1:3]); found.watch_replaced(); file = sys.argv[2] + '/late.py'; {how}; "
    text += "print(json.dumps(found.native()))"
    assert loaded(text, here, there) == "{}"  # a file that the side lacks may be shared data that git ignores
    (here / "late.py").write_text("X = 1\n")
    assert loaded(text, here, there) == "{}"
    (here / "late.py").write_text("X = 2\n")
    assert loaded(text, here, there) == '{"foreign": ["late.py"]}'
    assert loaded(text.replace("[2] +", "[1] +"), here, there) == "{}"
