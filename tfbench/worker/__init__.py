"""The measuring processes: zygotes, and the processes of launches that they fork.

They need only TensorFlow, numpy and pytest, so they run beside any version of these.
"""

import time as _time
from types import SimpleNamespace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    time = _time
else:
    time = SimpleNamespace(**vars(_time))
"""The clocks and ``sleep`` of the system, also where a benchmark or its conftest.py replaces those of the module."""
