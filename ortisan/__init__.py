"""Ortisan compiles ONNX graphs into native ONNX Runtime custom ops."""
