"""The AITemplate target: op graph -> AITemplate's CUDA sources, made by the real AITemplate in a process of its own."""
