"""Op graph -> op graph, for any backend."""
