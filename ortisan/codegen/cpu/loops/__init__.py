"""Elementwise chains inside of kernels: steps, strips, epilogues."""
