"""Stop in a timed block."""

import gc
import os
import signal


def test_stops(bench):
    def step():
        if not gc.isenabled():  # only while blocks are timed
            os.kill(os.getpid(), signal.SIGSTOP)
        return 1

    bench(step)
