"""Two meanings of strict: torch.export's, which traces with dynamo, and Ortisan's, which refuses to run eager."""

import tempfile
import warnings

import torch
from torch import nn

import ortisan.torch
from ortisan.errors import UnsupportedError
from ortisan.torch.reasons import WentEager

model = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 4)).eval()
x = torch.randn(5, 16)

# torch.export: the wrapper exports with strict=False, which runs the module's Python. Either program can be built.
for strict in (False, True):
    program = torch.export.export(model, (x,), strict=strict)
    with tempfile.TemporaryDirectory() as folder:
        artifact = ortisan.torch.build(program, f"{folder}/model")
        session = ortisan.load(artifact)
        (result,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    torch.testing.assert_close(torch.from_numpy(result), model(x).detach(), atol=1e-5, rtol=1e-4)
    print(f"torch.export(strict={strict}): built, same as eager")


# Ortisan: what can't be exported runs eager with a warning, or is an error.
def spectrum(x: torch.Tensor) -> torch.Tensor:
    return torch.linalg.eigvalsh(x @ x.t()) * 2 + 1


with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always", WentEager)
    torch.compile(spectrum, backend="ortisan")(x)
print("not strict:", next(str(each.message) for each in caught if each.category is WentEager))

torch._dynamo.reset()
try:
    torch.compile(spectrum, backend="ortisan", options={"strict": True})(x)
except UnsupportedError as error:
    print("strict:", error)
