"""A run of the suite: race each case, compare it with the baseline, collect the results."""
