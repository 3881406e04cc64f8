"""Die by SIGKILL, as under the kernel's out-of-memory killer."""

import os
import signal


def test_killed(bench):
    os.kill(os.getpid(), signal.SIGKILL)
