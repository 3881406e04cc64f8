"""Resolve the sides that the user names: interpreter, environment, source tree and settings."""
