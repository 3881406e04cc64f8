"""Declare benchmarks: axes and their levels, contracts between cases, shards, fingerprints of code."""
