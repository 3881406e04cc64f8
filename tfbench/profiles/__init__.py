"""Reading of profiles: what the TensorFlow Profiler wrote, as typed results; nothing here measures or prints."""
