"""What the harness itself costs: ``python -m benchmarks.harness``."""
