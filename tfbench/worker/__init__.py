"""The measuring processes: zygotes, and the processes of launches that they fork.

They need only TensorFlow, numpy and pytest, so they run beside any version of these.
"""

import gc as _gc
import time as _time
from types import SimpleNamespace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    gc, time = _gc, _time
else:
    gc, time = SimpleNamespace(**vars(_gc)), SimpleNamespace(**vars(_time))
"""Collections, clocks and ``sleep`` of the interpreter, also where a benchmark or its conftest.py replaces those of the modules."""
