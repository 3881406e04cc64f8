"""Read files of the TensorFlow Profiler into typed results. Nothing here measures or prints."""
