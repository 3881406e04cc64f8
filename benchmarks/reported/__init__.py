"""Regressions that users of TensorFlow and Keras reported, each as one benchmark.

A docstring names the thread, the versions and the claim. `docs/findings/find.py` races each between its versions.
They run on TensorFlow 2.10 to 2.21. `pytest --benchmark` collects them only by path: pytest --benchmark benchmarks/reported.
"""
