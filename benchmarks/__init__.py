"""What is measured: one family of workloads a file, combined with the axes of axes.py."""
