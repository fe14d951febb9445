"""Everything that reads or writes ONNX: load, canonicalize, partition, lower, substitute, save."""
