"""Build environments with real uv from the real index, of packages so small that each takes seconds."""

import os
import pwd
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tfbench.errors import SideError, UsageError
from tfbench.fs import scratch_dir
from tfbench.sides import environments
from tfbench.sides.environments import Environments, ResolveError, interpreters, other_requirements
from tfbench.sides.spec import Side, parse

SMALL = ["iniconfig==2.0.0"]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A folder with one environment."""
    root = tmp_path_factory.mktemp("environments")
    with Environments(root) as made:
        made.get(SMALL)
    return root


@pytest.mark.slow
def test_an_environment_has_the_request_and_the_needs_of_workers(built):
    (found,) = Environments(built).every()
    program = "import iniconfig, numpy, pytest, importlib.metadata as m; print(m.version('iniconfig'))"
    printed = subprocess.run([found.executable, "-c", program], capture_output=True, text=True, check=True)
    assert printed.stdout.strip() == "2.0.0"
    assert found.request == ("iniconfig==2.0.0",)
    assert "iniconfig==2.0.0" in found.packages
    assert found.bytes > 1e6
    assert list(found.folder.rglob("*.pyc"))
    assert found.folder in built.iterdir()


def test_an_environment_is_built_once_and_used_again(built):
    said = []
    before = Environments(built).every()[0]
    time.sleep(0.01)
    with Environments(built, said.append) as ours:
        again = ours.get(SMALL)
    assert again.folder == before.folder
    assert again.used > before.used - 1
    assert not [text for text in said if "building" in text]


@pytest.mark.slow
def test_compared_environments_get_the_same_python(tmp_path, monkeypatch):
    """typed-ast has wheels up to Python 3.11."""
    found = interpreters()
    if not any("3.13" in one or "3.12" in one for one in found) or not any(
        "3.10" in one or "3.11" in one for one in found
    ):
        pytest.skip("needs a Python with wheels of typed-ast, and one without")
    newest_first = sorted(found, key=lambda one: one.rpartition("python")[2], reverse=True)
    monkeypatch.setattr(environments, "interpreters", lambda: newest_first)
    with Environments(tmp_path) as ours:
        assert ours.get(SMALL).python.startswith(("3.12", "3.13"))
        ours.prefer([SMALL, ["typed-ast==1.5.5"]])
        assert ours.get(SMALL).python.startswith(("3.10", "3.11"))
        with pytest.raises(SideError, match=r"no Python 3\.7"):
            ours.get(SMALL, "3.7")


@pytest.mark.slow
def test_two_runs_with_the_same_request_build_one_environment(tmp_path):
    program = (
        "import sys; from pathlib import Path; from tfbench.sides.environments import *;"
        "print(Environments(Path(sys.argv[1]), lambda t: print(t)).get(['iniconfig==2.0.0']).folder)"
    )
    runs = [
        subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    reported = [run.communicate(timeout=120)[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0]
    assert sum("building" in text for text in reported) == 1
    assert len({text.splitlines()[-1] for text in reported}) == 1


@pytest.mark.parametrize(
    ("request_", "reported"),
    [
        (["iniconfig==2.0.9"], "iniconfig==2.0.9: .*there is no version of iniconfig==2.0.9"),
        (["no-such-package-at-all==1.0"], "no-such-package-at-all was not found in the package registry"),
    ],
)
def test_a_request_that_no_release_fits_has_the_reason_of_uv(tmp_path, request_, reported):
    with pytest.raises(SideError, match=reported):
        Environments(tmp_path).get(request_)
    assert not list(tmp_path.glob("[0-9a-f]*"))


def test_a_request_without_wheels_names_the_pythons_that_have_them(tmp_path, monkeypatch):
    newest = [one for one in interpreters() if one.endswith("3.13")]
    if not newest:
        pytest.skip("no Python 3.13 here, which old wheels do not fit")
    monkeypatch.setattr(environments, "interpreters", lambda: newest)
    with pytest.raises(SideError, match=r"^typed-ast==1\.5\.5: .*; install Python 3\.10 or 3\.11, "):
        Environments(tmp_path).get(["typed-ast==1.5.5"])


def test_without_a_network_a_kept_environment_is_used_or_its_absence_reported(built, tmp_path, monkeypatch):
    def offline(*arguments, given=""):
        raise ResolveError("error: Failed to fetch: https://index.invalid/ dns error")

    monkeypatch.setattr(environments, "run", offline)
    with Environments(built) as ours:
        assert ours.get(SMALL).request == tuple(SMALL)
    with pytest.raises(SideError, match="no network, and no kept environment has these requirements"):
        Environments(tmp_path).get(SMALL)


def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch):
    real = environments.run

    def full(*arguments, given=""):
        if "install" in arguments:
            raise ResolveError("error: failed to copy file: No space left on device (os error 28)")
        return real(*arguments, given=given)

    monkeypatch.setattr(environments, "run", full)
    with pytest.raises(SideError, match="No space left on device"):
        Environments(tmp_path).get(SMALL)
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


@pytest.mark.slow
def test_unused_environments_are_pruned(tmp_path, built, monkeypatch):
    ours = Environments(tmp_path)
    folder = ours.get(SMALL).folder
    assert Environments(tmp_path).prune(days=1) == []
    assert Environments(tmp_path).prune(days=0) == []  # it is held by `ours`
    ours.close()
    assert [one.folder for one in Environments(tmp_path).prune(days=0)] == [folder]
    assert not folder.exists()
    assert not list(tmp_path.glob("*.lock"))


@pytest.mark.slow
def test_an_environment_whose_removal_was_killed_is_gone_and_built_again(tmp_path):
    with Environments(tmp_path) as ours:
        folder = ours.get(SMALL).folder
    program = (
        "import os, shutil, signal, sys; from pathlib import Path; from tfbench.sides.environments import Environments\n"
        "def killed(folder, **how):\n"
        "    next(Path(folder).rglob('pyvenv.cfg')).unlink()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "shutil.rmtree = killed\n"
        "Environments(Path(sys.argv[1])).prune(days=0)"
    )
    assert subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False).returncode == -signal.SIGKILL
    assert Environments(tmp_path).every() == []
    assert not folder.exists()
    with Environments(tmp_path) as ours:
        made = ours.get(SMALL)
        assert (made.folder / "pyvenv.cfg").exists()
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == [folder.name]
    assert len(Environments(tmp_path).prune(days=0)) == 1
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


def test_other_files_of_the_same_version_are_another_environment(tmp_path, monkeypatch):
    """A package of a private index may be replaced without a new version."""

    def run(*arguments, given=""):
        if "compile" in arguments:
            return f"iniconfig==2.0.0 \\\n    --hash=sha256:aa \\\n    --hash=sha256:{found[-1]}\nnumpy==2.0.0\n"
        if "install" in arguments:
            installed.append(Path(arguments[-1]).read_text())
        return ""

    installed, found = [], []
    monkeypatch.setattr(environments, "run", run)
    monkeypatch.setattr(environments, "version_of", lambda python: "3.12.0")
    folders = []
    for digest in ("bb", "cc", "bb"):
        found.append(digest)
        with Environments(tmp_path) as ours:
            made = ours.get(SMALL)
        folders.append(made.folder)
        assert made.packages == ("iniconfig==2.0.0", "numpy==2.0.0")
    assert folders[0] == folders[2] != folders[1]
    assert installed[0] == "iniconfig===2.0.0 --hash=sha256:aa --hash=sha256:bb\nnumpy===2.0.0\n"
    assert len(installed) == 2


def test_a_missing_uv_is_reported_with_the_fix(monkeypatch):
    monkeypatch.setitem(sys.modules, "uv", None)
    monkeypatch.setenv("PATH", os.devnull)
    with pytest.raises(SideError, match=r"pip install uv"):
        environments.run("--version")


class Recorded(Environments):
    def get(self, request, python=""):
        self.request = request
        self.python_asked = python
        return environments.Environment(tuple(request), "3.11.0", (), folder=Path("/made"))


@pytest.mark.parametrize(
    ("spec", "request_", "python"),
    [
        ("2.15.1", ["tensorflow==2.15.1"], ""),
        ("tensorflow-cpu==2.20.0+keras==3.9.0", ["tensorflow-cpu==2.20.0", "keras==3.9.0"], ""),
        ("tensorflow==2.15.1+python==3.10", ["tensorflow==2.15.1"], "3.10"),
        ("2.19.1+tf-keras+tf-other==0.8.0", ["tensorflow==2.19.1", "tf-keras", "tf-other==0.8.0"], ""),
        # Another spelling would add the TensorFlow of this environment, whose files replace those of the requested one.
        ("tensorflow_cpu==2.20.0+My_Package[fast]==1.0", ["tensorflow-cpu==2.20.0", "my-package[fast]==1.0"], ""),
        ("TensorFlow.CPU==2.20.0", ["tensorflow-cpu==2.20.0"], ""),
    ],
)
def test_a_specification_names_packages_as_the_index_does_and_their_python(tmp_path, spec, request_, python):
    contender, made = Side("contender", sys.executable, tmp_path), Recorded(tmp_path)
    side = parse(f"{spec}+env:A=1", contender, tmp_path, made)
    assert (side.executable, side.env, made.request, made.python_asked) == (
        "/made/bin/python",
        {"A": "1"},
        request_,
        python,
    )
    parse("keras==3.9.0", contender, tmp_path, made)
    assert made.request[0] == "keras==3.9.0"
    assert made.request[1].startswith("tensorflow==")


@pytest.mark.parametrize(("plain", "found"), [(True, "thing==1.0"), (False, "thing==1.0+cu12")])
def test_a_local_version_is_taken_only_where_the_release_has_no_other(monkeypatch, plain, found):
    def locked(requirements, *_):
        if requirements[0] == "thing===1.0" and not plain:
            raise ResolveError("No solution found when resolving dependencies")
        return [f"thing=={requirements[0].partition('===')[2] or '1.0+cu12'} --hash=sha256:aa"]

    monkeypatch.setattr(environments, "locked_requirements", locked)
    assert environments._locked(["thing==1.0"], "python") == [f"{found} --hash=sha256:aa"]
    assert environments._locked(["thing==1.0+cu12"], "python") == ["thing==1.0+cu12 --hash=sha256:aa"]


def test_a_package_that_uv_was_told_to_override_is_no_side(tmp_path, monkeypatch):
    (tmp_path / "overrides.txt").write_text("iniconfig==1.1.1\n")
    monkeypatch.setenv("UV_OVERRIDE", str(tmp_path / "overrides.txt"))
    with pytest.raises(SideError, match=r"iniconfig==2\.0\.0: uv takes 1\.1\.1 instead; remove the override"):
        Environments(tmp_path / "environments").get(SMALL)


def test_old_releases_without_an_upper_bound_get_the_numpy_that_they_were_built_for():
    assert "numpy<2" in environments._needed(["tensorflow==2.10.1"])
    assert environments._needed(["tensorflow==2.12.1"]) == environments.NEEDED


def test_a_python_that_this_machine_lacks_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(environments, "interpreters", lambda: [sys.executable])
    monkeypatch.setattr(environments, "version_of", lambda path: "3.11.7")
    with pytest.raises(SideError, match=r"no Python 3\.10 on this machine"):
        Environments(tmp_path).get(["tensorflow==2.15.1"], "3.10")


@pytest.mark.parametrize(
    ("spec", "reported"),
    [
        ("tensorflow==2.9.3", "TensorFlow 2.10 is the oldest"),
        ("Tensorflow_CPU==2.9.3", "TensorFlow 2.10 is the oldest"),
        ("python==3.9", "measures on Python 3.10, 3.11, 3.12, 3.13; name one"),
        ("python==3", "measures on Python 3.10, 3.11, 3.12, 3.13; name one"),
        ("tensorflow==2.20.0+python:sh", "name either python: or packages"),
        ("tensorflow>=2.20", "is not understood"),
        ("2.19.1+tf-keros", "'tf-keros' is not understood"),
        ("tensorflow==", "is not understood"),
    ],
)
def test_an_impossible_specification_is_refused(tmp_path, spec, reported):
    with pytest.raises(UsageError, match=reported):
        parse(spec, Side("contender", sys.executable, tmp_path), tmp_path, Recorded(tmp_path))


def test_files_that_name_other_packages_are_found_on_both_sides(tmp_path):
    there, here = tmp_path / "there", tmp_path / "here"
    texts = {"requirements-dev.txt": ("a==1", "a==2"), "uv.lock": ("a", "a"), "environment.yml": ("a", None),
             "constraints.in": (None, "a"), "notes.txt": ("a", "b")}  # fmt: skip
    for number, folder in enumerate((there, here)):
        folder.mkdir()
        for name, both in texts.items():
            if both[number] is not None:
                (folder / name).write_text(both[number])
    assert other_requirements(there, here) == ["constraints.in", "environment.yml", "requirements-dev.txt"]


def test_a_user_without_a_home_has_environments_for_one_run(monkeypatch):
    def unknown(uid):
        raise KeyError(uid)

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert environments.kept().is_relative_to(scratch_dir())
    assert environments.interpreters()
