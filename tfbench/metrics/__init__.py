"""Metrics other than raced time: extract them from a launch, compare them, check contracts. Pure functions."""
