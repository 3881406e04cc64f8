import os
import subprocess
import sys

import pytest

ARENAS = """
import ctypes, sys, threading
from tfbench.worker.isolation import limit_arenas

if sys.argv[1]:
    limit_arenas(int(sys.argv[1]))
libc, ready = ctypes.CDLL(None), threading.Barrier(4)
libc.malloc.restype = ctypes.c_void_p

def allocate():
    ready.wait()  # a thread that has ended leaves its arena to the next one
    libc.malloc(1000)
    ready.wait()

threads = [threading.Thread(target=allocate) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
libc.malloc_stats()
"""

FAULTS = """
import resource, sys
import numpy as np
from tfbench.worker import isolation

getattr(isolation, sys.argv[1])()
np.ones(2**17)

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

before = faults()
for _ in range(100):
    np.ones(2**17)
print(faults() - before)
"""
PAGES = 100 * 2**20 // 4096


def run(code, argument, **variables):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    return subprocess.run(
        [sys.executable, "-c", code, argument], env=environment | variables, capture_output=True, text=True, check=True
    )  # fmt: skip


@pytest.mark.parametrize(
    ("limit", "variable", "most"), [("", {}, 9), ("1", {}, 1), ("2", {}, 2), ("1", {"MALLOC_ARENA_MAX": "3"}, 3)]
)
def test_threads_share_as_many_arenas_as_there_are_processors(limit, variable, most):
    done = run(ARENAS, limit, **variable)
    found = done.stderr.count("Arena ")
    assert found == most if most < 4 else found > 3


def test_blocks_have_pages_of_their_own_or_reuse_those_of_freed_ones():
    assert int(run(FAULTS, "map_large_blocks").stdout) >= PAGES
    assert int(run(FAULTS, "keep_freed_memory").stdout) < PAGES / 100


def test_a_threshold_that_users_chose_stays():
    chosen = {"MALLOC_MMAP_THRESHOLD_": str(2**25), "MALLOC_TRIM_THRESHOLD_": str(2**30)}
    assert int(run(FAULTS, "map_large_blocks", **chosen).stdout) < PAGES / 100
    assert int(run(FAULTS, "keep_freed_memory", GLIBC_TUNABLES="glibc.malloc.mmap_threshold=131072").stdout) >= PAGES
