"""The length of the tests that repeat something: short in every run, whole in `make chaos`."""

import os

WHOLE = os.environ.get("TFBENCH_CHAOS") == "whole"
"""Whether every test runs in full length."""
