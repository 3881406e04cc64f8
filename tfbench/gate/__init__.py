"""Decide whether a report passes: rules, accepted regressions, merged shards."""
