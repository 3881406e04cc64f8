"""NVIDIA GPUs: selection, locks, monitoring, and disturbances of launches."""
