"""Decide whether a report passes: acceptances, merged shards, rules."""
