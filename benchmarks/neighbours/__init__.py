"""Races of steps of known ratios, alone and beside busy loops on the processor of the race."""
