"""From what the caller gave to a checked `onnx_ir.Model`: loading, hashing, symbols, selection."""
