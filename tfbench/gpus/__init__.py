"""NVIDIA GPUs as a measuring machine has them: which there are, who may use one, and what disturbs a launch there."""
