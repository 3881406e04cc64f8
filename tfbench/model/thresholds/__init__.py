"""The thresholds and budgets of a run, a module for each group."""
