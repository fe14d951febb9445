"""Artifact folders: load, verify, bench."""
