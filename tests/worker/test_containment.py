"""What a launch starts ends with it, and what it writes is limited."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tfbench.worker.isolation import children, reap

LIMITED = """
import os, sys
from tfbench.worker.isolation import limit_files
limit_files(1000)
os.write(os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY), bytes(2000))  # cut at the limit
os.write(os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND), bytes(2000))
"""
ORPHANED = """
import os
from tfbench.worker.isolation import die_with_parent
die_with_parent({parent})
print("alive")
"""
FAMILY = """
import os, subprocess, sys, time
from tfbench.worker.isolation import adopt_orphans, children, end_orphans, reap

adopt_orphans()
helper = subprocess.Popen(["sleep", "1000"])
spared = children()
if (pid := os.fork()) == 0:
    os.setpgid(0, 0)
    subprocess.Popen(["sleep", "1000"])
    subprocess.Popen(["setsid", "sleep", "1000"])
    os._exit(7)
print(reap(pid, 5.0))
end_orphans(spared)
print(children() == spared == {helper.pid})
helper.kill()
"""


def python(text, *arguments):
    return subprocess.run([sys.executable, "-c", text, *arguments], capture_output=True, text=True, timeout=60)


def test_a_file_beyond_the_limit_ends_its_process(tmp_path):
    assert python(LIMITED, str(tmp_path / "file")).returncode == -signal.SIGXFSZ
    assert (tmp_path / "file").stat().st_size == 1000


def test_a_process_whose_parent_is_gone_does_not_go_on():
    with subprocess.Popen(["true"]) as gone:
        pass
    assert python(ORPHANED.format(parent=gone.pid)).stdout == ""
    assert python(ORPHANED.format(parent=os.getpid())).stdout == "alive\n"


def test_an_ended_launch_takes_its_programs_and_daemons_along():
    assert python(FAMILY).stdout.split() == ["7", "True"]


@pytest.mark.parametrize("kill", [True, False])
def test_a_child_is_reaped_with_its_exit_code_or_signal(kill):
    if (pid := os.fork()) == 0:
        time.sleep(1000 if kill else 0)
        os._exit(3)
    assert reap(pid, 0.0 if kill else 5.0) == (-signal.SIGKILL if kill else 3)
    assert pid not in children()
