"""The command line finds its commands and maps errors to exit codes."""

import subprocess
import sys

import pytest

from tfbench import __version__, cli


def test_version_and_commands_are_printed(capsys):
    with pytest.raises(SystemExit) as left:
        cli.main(["--version"])
    assert left.value.code == 0
    assert __version__ in capsys.readouterr().out
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    assert "calibrate" in capsys.readouterr().out


def test_a_wrong_command_line_exits_with_2():
    with pytest.raises(SystemExit) as left:
        cli.main(["nothing"])
    assert left.value.code == 2


def test_an_invalid_value_exits_with_2(capsys):
    assert cli.main(["calibrate", "--policy", "lax"]) == 2
    assert "no policy named 'lax'" in capsys.readouterr().err
    assert cli.main(["calibrate", "--slowdowns", "x"]) == 2
    assert cli.main(["calibrate", "nowhere.py"]) == 2


def test_it_runs_as_a_module_without_importing_tensorflow():
    program = "import sys, tfbench.cli\ntry: tfbench.cli.main(['--help'])\nexcept SystemExit: pass\nassert 'tensorflow' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60).returncode == 0
    assert subprocess.run([sys.executable, "-m", "tfbench", "--help"], capture_output=True, timeout=60).returncode == 0


def test_a_command_has_hyphens_where_its_file_has_underscores(capsys):
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    shown = capsys.readouterr().out
    assert "gpu-check" in shown
    assert "gpu_check" not in shown
