"""Exit after sending half a message."""

import os


def test_cuts(bench):
    os.write(bench.channel.fileno(), b'{"kind":"Prep')
    os._exit(0)
