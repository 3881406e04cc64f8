"""Code that runs in a process of its own."""

import subprocess
import sys
import textwrap
from typing import Any


def run_alone(code: str, *arguments: object, **options: Any) -> str:
    """Run code in a new process, which is small, so that the kernel reclaims none of its memory; return what it prints."""
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=True, **options).stdout
