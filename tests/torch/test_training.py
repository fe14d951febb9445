"""Training through torch.compile: what is compiled, and the gradients and losses of eager."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import ortisan.torch as front  # noqa: E402
from ortisan.torch.decompose import convolution_backward  # noqa: E402
from tests.models.nets import close, transformer  # noqa: E402

pytestmark = [pytest.mark.torch]
STRICT = {"strict": True}


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    "stride, padding, dilation, groups", [(1, 0, 1, 1), (2, 1, 1, 1), (3, 2, 2, 1), (2, 1, 1, 2), (1, 1, 2, 4)]
)
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_the_gradients_of_convolutions(
    axes: int, stride: int, padding: int, dilation: int, groups: int, transposed: bool
) -> None:
    x = torch.randn(3, 4, *(9 + axis for axis in range(axes)), dtype=torch.float64, requires_grad=True)
    weight = torch.randn(*((4, 8 // groups) if transposed else (8, 4 // groups)), *[3] * axes, dtype=torch.float64)
    settings = ([stride] * axes, [padding] * axes, [dilation] * axes, transposed, [0] * axes, groups)
    y = torch.ops.aten.convolution(x, weight, None, *settings)
    gradient = torch.randn_like(y)
    given = (gradient, x.detach(), weight, [8], *settings, [True, True, True])
    for have, want in zip(convolution_backward(*given), torch.ops.aten.convolution_backward(*given), strict=True):
        torch.testing.assert_close(have, want)


def images() -> Any:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.SiLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, groups=4, padding=1),
        nn.Mish(), nn.BatchNorm2d(8), nn.AvgPool2d(2), nn.ConvTranspose2d(8, 4, 3, stride=2), nn.Upsample(scale_factor=2),
        nn.AdaptiveAvgPool2d(2), nn.Dropout(0.1), nn.Flatten(), nn.Linear(16, 3),
    )  # fmt: skip


@pytest.mark.build
def test_images_with_forward_and_backward_compiled() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(4, 3, 32, 32), torch.randint(0, 3, (4,))
    check(images, lambda net: F.cross_entropy(net(x), y), 5)


@pytest.mark.build
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["GPT2", "Llama", "ViT"])
def test_transformers_with_dropout(kind: str) -> None:
    x = torch.randint(1, 53, (2, 9))
    pixels = torch.randn(2, 3, 32, 32)

    def make() -> Any:
        if kind == "GPT2":
            sizes = {"vocab_size": 53, "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 32}
            return transformer("GPT2LMHeadModel", "GPT2Config", **sizes).train()
        sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
        if kind == "Llama":
            more = {"num_key_value_heads": 2, "vocab_size": 53, "attention_dropout": 0.1}
            return transformer("LlamaForCausalLM", "LlamaConfig", **sizes, **more).train()
        more = {"image_size": 32, "patch_size": 8, "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
        return transformer("ViTForImageClassification", "ViTConfig", **sizes, **more).train()

    def loss(net: Any) -> Any:
        if kind == "ViT":
            return F.cross_entropy(net(pixels).logits, torch.tensor([0, 1]))
        return net(input_ids=x, labels=x, use_cache=False).loss

    check(make, loss, 20)


def check(make: Any, loss_of: Any, steps: int) -> None:
    """The losses and the weights of eager, from the same seed."""
    found = []
    for compiled in (False, True):
        torch.manual_seed(0)
        net = make()
        step = torch.compile(loss_of, backend=front.backend, options=STRICT) if compiled else loss_of
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
        losses = []
        torch.manual_seed(1)
        for _ in range(steps):
            optimizer.zero_grad()
            loss = step(net)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        found.append((losses, list(net.state_dict().values())))
    close(torch.tensor(found[1][0]), torch.tensor(found[0][0]), 1e-4)
    for have, want in zip(found[1][1], found[0][1], strict=True):
        close(have, want, 1e-3)


@pytest.mark.build
def test_a_compiled_optimizer() -> None:
    nets = [nn.Linear(8, 8) for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    optimizers = [torch.optim.AdamW(net.parameters(), lr=1e-2) for net in nets]
    steps = [optimizers[0].step, torch.compile(optimizers[1].step, backend=front.backend, options=STRICT)]
    for _ in range(3):
        x = torch.randn(4, 8)
        for net, optimizer, step in zip(nets, optimizers, steps, strict=True):
            optimizer.zero_grad()
            net(x).pow(2).sum().backward()
            step()
    close(nets[1].weight, nets[0].weight)
