"""Run a suite: race each case, compare it with the baseline, and collect the results."""
