"""Start a zygote: ``python -m tfbench.worker``. The controller calls it, never the user."""

import sys

from tfbench.worker.zygote import main

if __name__ == "__main__":
    main(sys.argv[1])
