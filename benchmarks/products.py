"""`python -m benchmarks.products`: the matrix kernel alone, as a share of this machine's multiply-adds per second."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.machine import Machine, cpu_name, run_program
from ortisan.codegen.cpu.folders import KERNEL_FOLDERS
from ortisan.codegen.cpu.isa import find_isa
from ortisan.codegen.render import TEMPLATES
from ortisan.codegen.tools.cmake import KERNEL_FLAGS
from ortisan.codegen.tools.toolchain import find_compiler

_SOURCE = Path(__file__).with_name("products.cpp")
_FLAGS = ("-O3", "-std=gnu++17", *KERNEL_FLAGS)
_SECONDS = 1.5
_INCLUDES = tuple(f"-I{TEMPLATES / folder}" for folder in (*KERNEL_FOLDERS, "binding"))


@dataclass(frozen=True)
class Shape:
    where: str
    rows: int
    depth: int
    columns: int


SHAPES = (
    Shape("BERT-base, seq 128: queries, keys, values", 128, 768, 2304),
    Shape("BERT-base, seq 128: attention output", 128, 768, 768),
    Shape("BERT-base, seq 128: wide", 128, 768, 3072),
    Shape("BERT-base, seq 128: narrow", 128, 3072, 768),
    Shape("BERT-base, 8 x 64: wide", 512, 768, 3072),
    Shape("BERT-base, 8 x 64: narrow", 512, 3072, 768),
    Shape("ViT-base: wide", 197, 768, 3072),
    Shape("small encoder: wide", 32, 128, 512),
    Shape("small encoder: narrow", 32, 512, 128),
    Shape("MLP", 32, 128, 128),
    Shape("16 rows", 16, 768, 3072),
    Shape("8 rows", 8, 768, 3072),
    Shape("1 row", 1, 768, 3072),
)


def measure(threads: int, folder: Path, shapes: Sequence[Shape], seconds: float) -> list[tuple[float, float]]:
    """GFLOP/s of each shape with hot and with cold weights."""
    program, log = folder / "products", folder / "products.log"
    flags = (*_FLAGS, "-pthread", *find_isa("native").flags, *_INCLUDES)
    if not program.exists():
        run_program((*find_compiler().argv, *flags, str(_SOURCE), "-o", str(program)), log)
    sizes = [str(size) for shape in shapes for size in (shape.rows, shape.depth, shape.columns)]
    return [
        (hot, cold)
        for hot, cold in json.loads(run_program((str(program), str(threads), str(seconds), *sizes), log)[-1])
    ]


def main() -> None:
    counts = sorted({1, min(2, len(os.sched_getaffinity(0)))})
    console = Console(width=110)
    table = Table("rows x depth x columns", "where", title=f"GFLOP/s and share of the FMA peak, {cpu_name()}")
    with tempfile.TemporaryDirectory(prefix="ortisan-bench-") as name, console.status("measuring"):
        folder = Path(name)
        machine = Machine(folder, counts)
        machine.measure()
        rates = {count: measure(count, folder, SHAPES, _SECONDS) for count in counts}
        machine.measure()
    for count in counts:
        for weights in ("hot", "cold"):
            table.add_column(f"{count}t, {weights}", justify="right")
    for index, shape in enumerate(SHAPES):
        cells = [
            f"{rate:.1f} ({rate / machine.limits[count].gflops:.0%})"
            for count in counts
            for rate in rates[count][index]
        ]
        table.add_row(f"{shape.rows} x {shape.depth} x {shape.columns}", shape.where, *cells)
    console.print(table)
    peaks = ", ".join(
        f"{machine.limits[count].gflops:.1f} GFLOP/s with {count} thread{'' if count == 1 else 's'}" for count in counts
    )
    console.print(f"FMA peak in this run: {peaks}.")


if __name__ == "__main__":
    main()
