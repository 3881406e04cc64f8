"""tfbench: a performance regression suite for TensorFlow that races instead of remembering."""

from tfbench.axes import Axis, Level, Variant, across
from tfbench.claims import as_fast, faster

__all__ = ["Axis", "Level", "Variant", "across", "as_fast", "faster"]
__version__ = "0.1.0"
