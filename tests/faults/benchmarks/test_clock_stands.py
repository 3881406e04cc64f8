"""Time with a clock that stands still."""


def test_clock_stands(bench):
    bench.clock = lambda: 7
    bench(sum, range(500))
