"""Spread a suite over machines: jobs, their plan, the engines that run them, and the merging of their reports."""
