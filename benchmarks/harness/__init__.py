"""Measure the overhead of the harness: ``python -m benchmarks.harness``."""
