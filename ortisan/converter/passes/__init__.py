"""ONNX -> canonical ONNX: the passes, in the order of `canonical`."""
