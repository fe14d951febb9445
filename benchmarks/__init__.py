"""Workloads timed against stock ONNX Runtime in the same run: `make bench`."""
