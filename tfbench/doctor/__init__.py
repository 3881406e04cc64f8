"""The doctor: what on this machine spoils timing, with its cure, and what a race of the same code can see here."""
