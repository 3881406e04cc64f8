"""The measuring wing: everything that runs in the processes that are timed.

It needs nothing but TensorFlow, numpy and pytest, so that it runs beside any version of them.
"""
