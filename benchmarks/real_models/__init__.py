"""Models that ship inside published packages: fetched by name and version, built, verified and timed."""
