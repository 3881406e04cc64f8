"""From what the user names to what can be run: an interpreter, a source tree, settings."""
