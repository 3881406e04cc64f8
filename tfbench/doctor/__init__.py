"""The doctor: what on this machine spoils timing, with its fix, and what a race of the same code can see here."""
