"""Op graph -> kernel plan -> sources -> shared library."""
