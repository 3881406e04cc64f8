"""Classes: with fixtures, with ``setup_method``, and of unittest."""

import unittest

import pytest


class Account:
    def __init__(self):
        self.entries = []

    def book(self, amounts):
        self.entries = [amount * 2 for amount in amounts]
        return sum(self.entries)


@pytest.fixture
def account():
    return Account()


class TestAccount:
    amounts = range(1500)

    def test_book(self, benchmark, account):
        assert benchmark(account.book, self.amounts) == 2 * sum(self.amounts)


class TestWithSetup:
    def setup_method(self):
        self.text = "some words to count " * 200

    def test_count(self, benchmark):
        assert benchmark(lambda: len(self.text.split())) == 800


class Counting(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def _take(self, benchmark):
        self.benchmark = benchmark

    def setUp(self):
        self.numbers = list(range(3000))

    def test_sum(self):
        self.assertEqual(self.benchmark(sum, self.numbers), sum(range(3000)))  # noqa: PT009
