"""Sample inputs for a model: sizes for its free dims, and values that make sense to the graph.

`sampler.py` puts together what the others say:

    roles.py      what an input is for, by the nodes that read it: an image, audio, indices, lengths, a mask
    ranks.py      the ranks of inputs that declare none
    wanted.py     the sizes that one would like, by role and by case
    dry_run.py    shapes, time and memory of the model at some sizes, without running it
    misfits.py    what of these shapes ONNX Runtime would refuse
    clues.py      what a refusal says about the sizes
    search.py     from the wanted sizes to those that the model takes
    steer.py      one size, moved until a number inside of the model is right
    values.py     the arrays
    advice.py     what to tell a person when no sample fits
"""

from __future__ import annotations

from ortisan.checks.samples.advice import how_to_give_inputs
from ortisan.checks.samples.case import Case, Rejection
from ortisan.checks.samples.sampler import Sampler

__all__ = ["Case", "Rejection", "Sampler", "how_to_give_inputs"]
