"""Measuring the gate itself: its false positives and its minimum detectable slowdown."""
