"""Two models side by side: sample inputs, comparison, timing."""
