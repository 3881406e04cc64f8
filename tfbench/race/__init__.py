"""The controller's wing: launching workers, turns, and when to stop."""
