"""Measuring the gate itself: how often it accuses unchanged code, and how small a slowdown it sees."""
