"""A good benchmark among the broken ones."""


def test_fine(bench):
    bench(sum, range(500))
