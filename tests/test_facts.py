"""What a process says of itself."""

import subprocess
import sys

import pytest

from tfbench import cli
from tfbench.facts import foreign_distribution, interpreter_options


def install(folder, entry_points=""):
    info = folder / "tfbench-1.0.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tfbench\nVersion: 1.0.0\n")
    (info / "entry_points.txt").write_text(entry_points)


def test_another_project_of_the_same_name_is_named(tmp_path, monkeypatch, capsys):
    install(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert foreign_distribution().startswith("the distribution tfbench 1.0.0 in this environment is another project")
    cli.main(["history", "list"])
    assert "pip uninstall tfbench" in capsys.readouterr().err


def test_an_older_installation_of_this_project_is_none(tmp_path, monkeypatch):
    install(tmp_path, "[pytest11]\ntfbench.plugin = tfbench.plugin\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert foreign_distribution() == ""


def test_another_project_whose_files_have_replaced_ours_is_named_in_one_line():
    program = "import tfbench; del tfbench.__version__; import tfbench.cli"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    (line,) = done.stderr.splitlines()
    assert line.startswith("tfbench: files of another project have replaced those of pytest-tfbench: pip uninstall")
    assert done.returncode == 1


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("-m pytest -O", ""),
        ("/bin/pytest --benchmark -O", ""),
        ("-OO -Bu -m pytest", "-O -O -B"),
        ("-bb -Werror -W ignore -X dev -Xutf8=1 run.py", "-b -b -Werror -Wignore -Xdev -Xutf8=1"),
        ("-IPvqi -c pass", "-E -s"),
        ("-OX dev -sm pytest", "-O -Xdev -s"),
        ("-X pycache_prefix=/x -d -", ""),
        ("--check-hash-based-pycs always -E x.py", "--check-hash-based-pycs always -E"),
    ],
)
def test_the_options_of_the_interpreter_are_those_of_its_command_line(words, options):
    assert interpreter_options(words.split()) == tuple(options.split())
