"""Mutates small models and sees whether each ends well: compiled, left or refused, never a crash (`make fuzz`)."""
