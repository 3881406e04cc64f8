"""Ask for more memory than the process may have."""

import resource


def test_out_of_memory(bench):
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    bench(bytearray, 8 << 30)
