"""Benchmarks of TensorFlow: one family of workloads per file, combined with the axes of axes.py."""
