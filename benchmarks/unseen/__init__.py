"""Workloads on which no threshold was chosen, for ``tfbench calibrate benchmarks/unseen``."""
