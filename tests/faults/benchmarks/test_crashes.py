"""Crash in the first call of the step."""

import os
import signal


def test_crashes(bench):
    bench(lambda: os.kill(os.getpid(), signal.SIGSEGV))
