"""tfbench: a performance regression suite for TensorFlow that races instead of remembering."""

from tfbench.axes import Axis, Level, Variant, across

__all__ = ["Axis", "Level", "Variant", "across"]
__version__ = "0.1.0"
