"""Baselines on disk: pytest-benchmark JSON files, written whole or not at all."""
