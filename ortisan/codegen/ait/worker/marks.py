"""How lines begin that the worker's parent passes on."""

PROGRESS = "ortisan: "
