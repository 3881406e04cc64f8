"""The measuring processes: zygotes, and the processes of launches that they fork.

They need only TensorFlow, numpy and pytest, so they run beside any version of these.
"""
