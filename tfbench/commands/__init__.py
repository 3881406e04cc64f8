"""One file per command: its docstring is the help, ``add`` adds the options, ``run`` returns the exit code."""
