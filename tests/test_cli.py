"""The command line finds its commands and maps errors to exit codes."""

import argparse
import itertools
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.histories import nightly, noise
from tests.fakes.report import complete, row
from tfbench import __version__, cli, commands
from tfbench.errors import SideError
from tfbench.report import json_format
from tfbench.sides.source_tree import code_of
from tfbench.suite.functions import line_of
from tfbench.suite.shards import Shard, part


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--version"], 0, __version__),
        (["--help"], 0, "calibrate"),
        ([], 2, "calibrate"),
        (["xyz"], 2, "no command 'xyz': the commands are baseline,"),
        (["ci", "--maxfail", "1"], 2, "--maxfail; give options of pytest as --arguments=OPTION"),
        (["versions", "a", "--unknown", "b"], 2, "usage: tfbench versions "),
        (["gate", "r.json", "-k", "x"], 2, "unrecognized arguments"),
    ],
)
def test_help_and_wrong_words_are_answered_with_what_there_is(capsys, words, code, said):
    with pytest.raises(SystemExit) as left:
        cli.main(words)
    shown = capsys.readouterr()
    assert (left.value.code, said in (shown.err if code else shown.out)) == (code, True), shown


@pytest.mark.parametrize("words", [["--help"], ["history"], ["baseline", "list"]])
def test_a_removed_current_folder_is_named(tmp_path, monkeypatch, capsys, words):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(SystemExit) as left:
        cli.main(words)
    assert left.value.code == 5
    expected = "tfbench: the current folder cannot be used: No such file or directory; change to another one\n"
    assert capsys.readouterr().err == expected


def test_an_invalid_value_exits_with_2(capsys):
    assert cli.main(["calibrate", "--policy", "lax"]) == 2
    assert "no policy named 'lax'" in capsys.readouterr().err
    assert cli.main(["calibrate", "--slowdowns", "x"]) == 2
    assert cli.main(["calibrate", "nowhere.py"]) == 2


def test_it_runs_as_a_module_without_importing_tensorflow():
    program = "import sys, tfbench.cli\ntry: tfbench.cli.main(['--help'])\nexcept SystemExit: pass\nassert 'tensorflow' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60).returncode == 0
    assert subprocess.run([sys.executable, "-m", "tfbench", "--help"], capture_output=True, timeout=60).returncode == 0


def test_every_module_of_commands_has_a_command_and_no_command_lacks_its_functions():
    modules = {info.name for info in pkgutil.iter_modules(commands.__path__, "tfbench.commands.")}
    modules.remove("tfbench.commands.setup")  # which the commands share
    assert set(cli.COMMANDS.values()) == modules
    assert all(map(callable, itertools.chain.from_iterable(map(cli.functions, cli.COMMANDS))))


def test_a_path_may_follow_an_option(monkeypatch):
    seen = {}
    for name in ("versions", "bisect"):
        monkeypatch.setattr(
            f"tfbench.commands.versions.run_{name}", lambda arguments: seen.update(vars(arguments)) or 0
        )
    assert cli.main(["versions", "2.19.0", "2.20.0", "-k", "x", "benchmarks/", "--policy", "quick", "more/"]) == 0
    assert (seen["words"], seen["select -k"]) == (["2.19.0", "2.20.0", "benchmarks/", "more/"], ["x"])
    assert cli.main(["bisect", "a/", "--good", "1", "--bad", "2", "b/"]) == 0
    assert seen["paths"] == ["a/", "b/"]


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_words_after_an_option_belong_to_an_argument_that_argparse_does_not_convert(command):
    parser = argparse.ArgumentParser()
    cli.functions(command)[0](parser)
    (*types,) = (action.type for action in parser._actions if action.dest == parser.get_default("intermixed"))
    assert types in ([], [None])


@pytest.mark.parametrize(("command", "option"), [("gate", "--comment"), ("report", "--markdown")])
def test_files_before_and_after_an_option_are_read(tmp_path, monkeypatch, command, option):
    monkeypatch.chdir(tmp_path)
    names = ["b/test_x.py::test_x", "b/test_x.py::test_y"]
    for index, name in enumerate(names, 1):
        shard = part(Shard(index, 2), names, [name])
        Path(f"{index}.json").write_text(json_format.render(complete([row(name)], shard=shard)))
    assert cli.main([command, "1.json", option, "out.md", "2.json"]) == 0
    assert "2 cases" in Path("out.md").read_text()


def test_reports_are_read_where_the_system_has_no_file_locks(tmp_path):
    (tmp_path / "r.json").write_text(json_format.render(complete([row("b/test_x.py::test_x")])))
    program = "import sys; sys.modules['fcntl'] = None; from tfbench import cli; sys.exit(cli.main(['gate', 'r.json']))"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


ELSEWHERE = """
import os, platform, sys
import numpy, pytest, rich.console, rich.progress, scipy.stats  # they are for this system
from importlib.metadata import entry_points

missing = {
    "darwin": ((), ("waitid", "sched_getaffinity", "sched_setaffinity")),
    "win32": (("fcntl", "resource", "pwd"), ("fork", "killpg", "setpgid", "setpgrp", "waitid", "sched_getaffinity")),
}
modules, functions = missing[sys.argv[1]]
sys.modules.update(dict.fromkeys(modules))
for function in functions:
    delattr(os, function)
sys.platform = sys.argv[1]
if sys.argv[2] == "pytest":
    sys.exit(pytest.main(["-p", "no:cacheprovider", "--rootdir=.", "--capture=sys", *sys.argv[3:]]))
from tfbench import cli
sys.exit(cli.main(sys.argv[2:]))
"""


def elsewhere(folder, system, *words):
    """Run a command on an imitation of another system."""
    command = [sys.executable, "-c", ELSEWHERE, system, *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("system", "words"),
    [
        ("darwin", ["pytest", "--benchmark", "b"]),
        ("win32", ["doctor"]),
        ("win32", ["fleet", "run", "--engine", "local", "b"]),
    ],
)
def test_another_system_than_linux_is_refused_in_one_line_before_anything_runs(tmp_path, system, words):
    (tmp_path / "b").mkdir()
    (tmp_path / "b/test_b.py").write_text("open('imported', 'w')\ndef test_b(bench): bench(sum, [1])\n")
    done = elsewhere(tmp_path, system, *words)
    (line,) = (line for line in (done.stdout + done.stderr).splitlines() if line)
    assert f"benchmarks run on Linux only, and this system is {system}; use a Linux machine" in line
    assert done.returncode in (2, 4)  # the code of a usage error: tfbench's, and pytest's
    assert not [file for file in tmp_path.rglob("*") if file.name in ("imported", ".tfbench")]


@pytest.mark.slow
@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_another_system_lists_cases_and_reads_reports(tmp_path, system):
    (tmp_path / "r.json").write_text(json_format.render(complete([row("b/test_x.py::test_x")])))
    for words in (["gate", "r.json"], ["report", "r.json", "--markdown", "r.md"]):
        done = elsewhere(tmp_path, system, *words)
        assert (done.returncode, done.stderr) == (0, "")
    (tmp_path / "test_b.py").write_text("def test_b(bench): bench(sum, [1])\n")
    done = elsewhere(tmp_path, system, "pytest", "--benchmark", "--collect-only", "-q", "test_b.py")
    assert (done.returncode, done.stdout.split()[0]) == (0, "test_b.py::test_b")


def test_an_output_that_cannot_be_written_is_one_line(tmp_path, capsys):
    (tmp_path / "r.json").write_text(json_format.render(complete([row("b/test_x.py::test_x")])))
    (tmp_path / "file").touch()
    assert cli.main(["report", str(tmp_path / "r.json"), "--markdown", str(tmp_path / "file/x")]) == 5
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert "File exists; it is no folder; name one" in error
    assert cli.main(["gate", str(tmp_path / "r.json"), "--comment", str(tmp_path)]) == 5
    assert capsys.readouterr().err.strip().endswith(": this is a folder; name a file in it")


@pytest.mark.parametrize("amount", ["nan", "-1", "long"])
@pytest.mark.parametrize("words", [("doctor", "--envs", "--prune"), ("calibrate", "--budget")])
def test_an_amount_that_is_none_is_refused(capsys, words, amount):
    with pytest.raises(SystemExit, match="2"):
        cli.main([*words[:-1], f"{words[-1]}={amount}"])
    assert f"argument {words[-1]}: {amount!r}: write a number of at least 0" in capsys.readouterr().err


@pytest.mark.parametrize("share", ["nan", "-1", "2", "inf"])
def test_a_share_that_is_none_does_not_pass(tmp_path, capsys, share):
    (tmp_path / "r.json").write_text(json_format.render(complete([row("b/test_x.py::test_x")])))
    assert cli.main(["gate", str(tmp_path / "r.json"), f"--min-compared={share}"]) == 2
    assert "share from 0 to 1" in capsys.readouterr().err


def test_no_file_outside_of_the_root_is_read_for_a_line(tmp_path):
    assert line_of(Path(), "x" * 5000 + ".py::y") is line_of(Path(), "\0.py::y") is None
    (tmp_path / "root").mkdir()
    (tmp_path / "outside.py").write_text("def test_x(): ...\n")
    (tmp_path / "root/link.py").symlink_to(tmp_path / "outside.py")
    for name in ("../outside.py::test_x", f"{tmp_path}/outside.py::test_x", "link.py::test_x"):
        assert line_of(tmp_path / "root", name) is None
    assert line_of(tmp_path, "outside.py::test_x") == 1
    (tmp_path / "outside.py").write_text("class Mine(Benchmark):\n    def benchmark_x(self): ...\n")
    for name in ("Mine.benchmark_x", "Mine::benchmark_x[a=1.5]"):
        assert line_of(tmp_path, f"outside.py::{name}") == 2


def test_a_revision_is_no_option_of_git():
    with pytest.raises(SideError, match="--output=/tmp/evil: no such revision"):
        code_of(Path(__file__).parent, "--output=/tmp/evil")


def test_an_output_replaces_what_an_earlier_run_wrote_and_no_other_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "0")  # as a terminal of no width has
    Path("report.json").write_text(json_format.render(complete([row("b/test_x.py::test_x")])))
    outputs = ["--markdown", "r.md", "--html", "page.html"]
    assert [cli.main(["report", "report.json", *outputs]) for _ in range(2)] == [0, 0]
    assert [cli.main(["gate", "report.json", "--comment", "comment.md"]) for _ in range(2)] == [0, 0]
    Path("test_x.py").write_text("import tfbench\n")
    assert cli.main(["report", "report.json", "--markdown", "test_x.py"]) == 2
    assert "--markdown test_x.py: tfbench has not written this file" in capsys.readouterr().err
    assert Path("test_x.py").read_text() == "import tfbench\n"


@pytest.mark.parametrize("command", ["gate", "report"])
def test_a_reader_that_wants_no_more_ends_a_command_silently(tmp_path, command):
    report = tmp_path / "report.json"
    report.write_text(json_format.render(complete([row(f"b.py::test_{number}") for number in range(300)])))
    program = [sys.executable, "-m", "tfbench", command, str(report)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        running.stdout.close()
        assert running.stderr.read() == ""
    assert running.returncode == 141


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_an_output_without_the_characters_of_charts_gets_others(tmp_path, encoding):
    (tmp_path / "r.json").write_text(json_format.render(complete([row("b.py::test_a[●]", "regressed")])))
    program = [sys.executable, "-m", "tfbench", "report", "r.json"]
    variables = os.environ | {"PYTHONIOENCODING": encoding}
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, env=variables, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"test_a[?]  regressed" in done.stdout


def test_saved_files_are_found_from_a_folder_below_the_root(tmp_path, monkeypatch, capsys):
    nightly(tmp_path / ".tfbench/history", {"b.py::test_a": noise(3)})
    (tmp_path / ".tfbench/baselines").mkdir()
    (tmp_path / ".tfbench/baselines/first.json").write_text("")
    (tmp_path / "benchmarks").mkdir()
    monkeypatch.chdir(tmp_path / "benchmarks")
    assert cli.main(["history"]) == 0
    assert cli.main(["baseline", "list"]) == 0
    assert cli.main(["report", "first"]) == 5
    shown, errors = capsys.readouterr()
    assert "history: 3 runs, 1 case" in shown
    assert "first" in shown
    assert f"{tmp_path}/.tfbench/baselines/first.json is not JSON" in errors
