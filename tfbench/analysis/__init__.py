"""Pure: from launches to verdicts. No clock, no file, no process."""
