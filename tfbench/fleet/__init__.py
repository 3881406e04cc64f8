"""Spread a suite over machines."""
