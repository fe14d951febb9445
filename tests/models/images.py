"""Small sizes of the convolutional networks of the package."""

from __future__ import annotations

import onnx_ir as ir

from ortisan.models import efficientnet, mobilenet, resnet, unet, yolo
from ortisan.models.images import Stage

_STAGES = (Stage(1, 8, 1, 1), Stage(3, 24, 2, 2, 5), Stage(2, 24, 1, 1))


def small_networks() -> dict[str, ir.Model]:
    """Each with images of 64 x 64 or less."""
    return {
        "basic": resnet(18, image=40, width=8, classes=7),
        "bottleneck": resnet(50, image=32, width=4, classes=7),
        "mobilenet": mobilenet(image=33, stages=_STAGES, classes=7),
        "efficientnet": efficientnet(image=32, stages=_STAGES, classes=7),
        "unet": unet(image=32, width=8, levels=3),
        "yolo": yolo(image=64, width=4, classes=3),
        "selected": yolo(batch=1, image=64, width=4, classes=3, select=True),
    }
