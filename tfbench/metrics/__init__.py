"""Metrics other than time: extract them from a launch, compare them, check contracts. Pure functions."""
