"""The bottom layer: the op graph, the op vocabulary, and the ONNX lowering entries. Knows no other layer."""
