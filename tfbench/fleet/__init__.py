"""Spread a suite over machines: jobs and their plan; doing and running them, and the merging of their reports."""
