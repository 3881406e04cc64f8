"""Read files of the TensorFlow Profiler, and find what a step spends its time on. Nothing here measures or prints."""
