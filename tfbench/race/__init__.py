"""Races: processes of launches, their turns, and the decision when to stop."""
