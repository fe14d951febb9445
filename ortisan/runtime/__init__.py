"""Serving: an artifact folder and a session that runs it. Imports numpy and onnxruntime, and none of the compiler."""
