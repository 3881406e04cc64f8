"""One file for each word behind ``tfbench``. Each has ``add`` (its options) and ``run`` (its exit code)."""
