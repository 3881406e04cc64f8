"""Start an ancestor: ``python -m tfbench.worker``. The controller calls it, never the user."""

import sys

from tfbench.protocol import decode
from tfbench.worker import zygote

if __name__ == "__main__":
    zygote.main(decode(sys.argv[1]))
