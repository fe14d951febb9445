"""Small random models of transformers' architectures, compiled on both roads: `python -m tools.architectures`."""
