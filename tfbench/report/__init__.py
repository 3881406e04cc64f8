"""Render reports as text. Nothing here measures, decides or writes files."""
