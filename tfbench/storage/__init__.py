"""Baselines and history on disk: pytest-benchmark JSON files, each replaced as a whole."""
