"""Blocking of matrix products: candidates, timing, choice, memory of choices."""
