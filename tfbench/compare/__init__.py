"""Compare two finished result files."""
