"""tfbench: a performance regression suite for TensorFlow that races two versions instead of comparing saved times."""

from tfbench.suite.axes import Axis, Level, Variant, across
from tfbench.suite.claims import as_accurate, as_fast, faster, no_leak, smaller

__all__ = ["Axis", "Level", "Variant", "across", "as_accurate", "as_fast", "faster", "no_leak", "smaller"]
__version__ = "0.1.0"
