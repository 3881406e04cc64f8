"""``python -m tfbench.worker``: start a zygote. Called by the controller, never by hand."""

import sys

from tfbench.worker.zygote import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
