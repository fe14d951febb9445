"""The CPU target: op graph -> fusion groups -> memory plan -> kernels rendered from templates/cpu."""
