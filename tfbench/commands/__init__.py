"""One file for each word behind ``tfbench``: its docstring is its help, ``add`` its options, ``run`` its exit code."""
