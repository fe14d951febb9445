"""A draft export goes on where torch.export stops, and reports what it assumed."""

import tempfile

import torch
from torch import nn

import ortisan.torch


class Guarded(nn.Module):
    """Asks a tensor for its value, which torch.export can't answer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.abs().max() > 100:
            x = x / 100
        return torch.relu(self.layer(x))


model, x = Guarded().eval(), torch.randn(10, 16)

try:
    torch.export.export(model, (x,))
    raise AssertionError("nothing to draft")
except Exception as error:  # noqa: BLE001  # torch has no one class for it
    print("torch.export:", str(error).strip().splitlines()[0][:90])

program = torch.export.draft_export(model, (x,))
kinds = sorted({each.failure_type.name for each in program._report.failures})
print(f"draft export: {len(program._report.failures)} assumption, {kinds}")

# What it gives is an ExportedProgram, which can be built like any other. Its assumptions are yours to check.
with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
    session = ortisan.load(ortisan.torch.build(program, f"{folder}/guarded"))
    (result,) = session.run(None, {"x": x.numpy()})
    torch.testing.assert_close(torch.from_numpy(result), model(x), atol=1e-5, rtol=1e-4)
    print("built; same as eager where the assumption holds")
