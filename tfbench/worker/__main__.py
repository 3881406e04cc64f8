"""Start an ancestor: ``python -m tfbench.worker``. The controller calls it, never the user."""

import sys

from tfbench.protocol import StartAncestor, StartZygote, decode
from tfbench.worker import ancestor, zygote

if __name__ == "__main__":
    start = decode(sys.argv[1])
    if isinstance(start, StartAncestor):
        ancestor.main(start)
    elif isinstance(start, StartZygote):  # it replaces a zygote that has run an op
        zygote.main(start)
