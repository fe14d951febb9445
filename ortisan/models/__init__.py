"""Models made on the spot, with random weights, in the form that exporters write. They need no training framework.

Weights keep activations, logits and outputs of order 1; biases are not zero and norm weights are away from 1, so that
an error in any of them shows.
"""

from __future__ import annotations

from ortisan.models.bert import BertSize, bert
from ortisan.models.diffusion import DiffusionSize, diffusion_unet
from ortisan.models.gpt2 import Gpt2Size, gpt2
from ortisan.models.images import efficientnet, mobilenet, resnet, unet
from ortisan.models.llama import LlamaSize, llama
from ortisan.models.yolo import yolo

__all__ = [
    "BertSize",
    "DiffusionSize",
    "Gpt2Size",
    "LlamaSize",
    "bert",
    "diffusion_unet",
    "efficientnet",
    "gpt2",
    "llama",
    "mobilenet",
    "resnet",
    "unet",
    "yolo",
]
