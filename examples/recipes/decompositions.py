"""Decompositions: what the exporter does by itself, and a program that you decompose before it is built."""

import tempfile
from collections import Counter

import torch
from torch import nn

import ortisan.torch

model = nn.Sequential(nn.Linear(16, 32), nn.GELU(approximate="tanh"), nn.LayerNorm(32), nn.Linear(32, 4)).eval()
x = torch.randn(5, 16)


def ops(program: torch.export.ExportedProgram) -> Counter:
    return Counter(str(node.target) for node in program.graph.nodes if node.op == "call_function")


program = torch.export.export(model, (x,))
core = program.run_decompositions()  # into the core ops of ATen
table = torch.export.default_decompositions()
table[torch.ops.aten.gelu.default] = lambda x, approximate="none": x * torch.sigmoid(1.702 * x)
mine = program.run_decompositions(table)  # and one op by a formula of your own

with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
    for name, each in (("as exported", program), ("core", core), ("mine", mine)):
        artifact = ortisan.torch.build(each, f"{folder}/{name}")
        session = ortisan.load(artifact)
        (result,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
        error = (torch.from_numpy(result) - model(x)).abs().max()
        compiled = sorted(artifact.manifest["op_counts"])
        print(f"{name}: {sum(ops(each).values())} ops of torch, {error:.0e} from eager: {', '.join(compiled)}")
    torch.testing.assert_close(torch.from_numpy(result), mine.module()(x), atol=1e-5, rtol=1e-4)
