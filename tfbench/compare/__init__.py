"""Compare two result files of finished runs."""
