"""Check the machine for sources of timing noise, and measure the slowdown that is detectable here."""
