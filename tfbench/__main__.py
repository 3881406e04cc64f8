"""Run the command line as ``python -m tfbench``."""

import sys

from tfbench.cli import main

if __name__ == "__main__":
    sys.exit(main())
