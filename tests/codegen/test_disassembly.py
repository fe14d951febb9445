"""The k loop of every register tile, as the compiler left it: nothing of it in memory, and no multiplication too many."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from ortisan.codegen.cpu.folders import KERNEL_FOLDERS
from ortisan.codegen.cpu.isa import ISAS
from ortisan.codegen.render import TEMPLATES
from ortisan.codegen.tools.cmake import KERNEL_FLAGS
from ortisan.codegen.tools.toolchain import Compiler, find_compiler
from ortisan.errors import ToolchainError

pytestmark = pytest.mark.build

SOURCE = """
#include "tile.h"
using namespace ortisan;
void every_tile(int64_t rows, int64_t K, const float* a, int64_t lda, const float* b, int64_t ldb, float* sums, bool more) {
  detail::add_tile<float>(rows, K, a, lda, b, ldb, sums, panel_width<float>, more);
  detail::add_panels<float>(rows, 2, K, a, lda, b, ldb, sums, more, {});
}
#if defined(__AVX512BF16__)
void every_tile(int64_t rows, int64_t K, const bfloat16* a, int64_t lda, const bfloat16* b, int64_t ldb, float* sums, bool more) {
  detail::add_tile<bfloat16>(rows, K, a, lda, b, ldb, sums, panel_width<bfloat16>, more);
  detail::add_panels<bfloat16>(rows, 2, K, a, lda, b, ldb, sums, more, {});
}
#endif
"""
FLAGS = ["-O3", "-std=gnu++17", *KERNEL_FLAGS]


@dataclass(frozen=True)
class Tile:
    """What a tile should be: its function, most rows, vectors per row, steps of k per iteration, and multiplication."""

    target: str
    function: str
    rows: int
    vectors: int
    unrolled: int
    multiply: str
    stack: str


TILES = {
    "x86-64-v2": Tile("x86-64-v2", r"TilePlain<float>::multiply<(\d+)l>\(", 2, 4, 4, "mulps", r"%rsp"),
    "x86-64-v3": Tile("x86-64-v3", r"TileAvx2::multiply<(\d+)l>\(", 6, 2, 8, "vfmadd231ps", r"%rsp"),
    "x86-64-v4": Tile("x86-64-v4", r"TileAvx512::multiply<(\d+)l, 1l, \S*Kinds\)0>\(", 8, 1, 8, "vfmadd231ps", r"%rsp"),
    "x86-64-v4, two panels": Tile(
        "x86-64-v4", r"TileAvx512::multiply<(\d+)l, 2l, \S*Kinds\)0>\(", 8, 2, 8, "vfmadd231ps", r"%rsp"
    ),
    "x86-64-v4+bf16+vnni": Tile(
        "x86-64-v4+bf16+vnni", r"TileAvx512Bf16::multiply<(\d+)l, 1l>\(", 8, 1, 8, "vdpbf16ps", r"%rsp"
    ),
    "x86-64-v4+bf16+vnni, two panels": Tile(
        "x86-64-v4+bf16+vnni", r"TileAvx512Bf16::multiply<(\d+)l, 2l>\(", 8, 2, 8, "vdpbf16ps", r"%rsp"
    ),
    "aarch64": Tile("aarch64", r"TileNeon::multiply<(\d+)l>\(", 6, 4, 4, "fmla", r"\bsp\b"),
}


@pytest.mark.parametrize("name", TILES)
def test_the_k_loop_of_every_tile(name: str, tmp_path: Path) -> None:
    tile = TILES[name]
    isa = ISAS[tile.target]
    compiler = compiler_for(tile.target)
    objdump = objdump_of(compiler)
    (tmp_path / "tiles.cpp").write_text(SOURCE, encoding="utf-8")
    includes = [f"-I{TEMPLATES / folder}" for folder in KERNEL_FOLDERS]
    command = [*compiler.argv, *FLAGS, *isa.flags, *includes, "-c", "tiles.cpp", "-o", "tiles.o"]
    subprocess.run(command, check=True, cwd=tmp_path)
    listing = run([objdump, "-dC", "--no-show-raw-insn", str(tmp_path / "tiles.o")])
    seen = {}
    for function, instructions in functions(listing).items():
        if height := re.search(tile.function, function):
            seen[int(height[1])] = instructions
    assert sorted(seen) == list(range(1, tile.rows + 1))
    for rows, instructions in seen.items():
        step = rows * tile.vectors
        counts = []
        for loop in inner_loops(instructions):
            count = sum(text.startswith(tile.multiply) for text in loop)
            counts += [count] if count else []
            assert not [text for text in loop if re.search(tile.stack, text)], f"{rows} rows"
        # The iterations, and the steps of k that are left over one by one, which some compilers write out.
        assert step * tile.unrolled in counts, f"{rows} rows"
        assert set(counts) <= {step * tile.unrolled, step}, f"{rows} rows"


def compiler_for(target: str) -> Compiler:
    try:
        compiler = find_compiler(machine=ISAS[target].machine)
    except ToolchainError as error:
        pytest.skip(str(error))
    check = [*compiler.argv, *ISAS[target].flags, "-x", "c++", "-E", "/dev/null"]
    if compiler.machine != ISAS[target].machine or subprocess.run(check, capture_output=True, check=False).returncode:
        pytest.skip(f"{compiler.argv[0]} can't build for {target}")
    return compiler


def objdump_of(compiler: Compiler) -> str:
    """The disassembler for the compiler's machine."""
    for name in (run([*compiler.argv, "-print-prog-name=objdump"]).strip(), f"{compiler.machine}-linux-gnu-objdump"):
        if found := shutil.which(name):
            return found
    pytest.skip(f"no objdump for {compiler.machine}")


def run(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def functions(listing: str) -> dict[str, list[tuple[int, str]]]:
    """Function -> its instructions, with their addresses."""
    found: dict[str, list[tuple[int, str]]] = {}
    for line in listing.splitlines():
        if head := re.match(r"[0-9a-f]+ <(.+)>:$", line):
            found[head[1]] = []
        elif found and (instruction := re.match(r"\s*([0-9a-f]+):\s+(\S.*)", line)):
            list(found.values())[-1].append((int(instruction[1], 16), instruction[2]))
    return found


def inner_loops(instructions: list[tuple[int, str]]) -> list[list[str]]:
    """The instructions of each loop without another loop in it: from the target of a jump back to the jump."""
    spans = []
    for address, text in instructions:
        jump = re.match(r"(?:j[a-z]+|b\.?[a-z]*|cbn?z|tbn?z)\s+(?:.*,\s*)?([0-9a-f]+) <", text)
        if jump and int(jump[1], 16) <= address:
            spans.append((int(jump[1], 16), address))
    inner = [(a, b) for a, b in spans if not any((c, d) != (a, b) and a <= c and d <= b for c, d in spans)]
    return [[text for address, text in instructions if begin <= address <= end] for begin, end in inner]


@pytest.mark.parametrize("spill", ["mov    %rax,0x8(%rsp)", "vmovaps %ymm1,(%rsp)"])
def test_a_spill_would_be_seen(spill: str) -> None:
    listing = f"""
0000000000000000 <tile()>:
   0:\tpush   %rbp
   4:\tvfmadd231ps %ymm0,%ymm1,%ymm2
   8:\t{spill}
   c:\tdec    %rcx
  10:\tjne    4 <tile()+0x4>
  14:\tret
"""
    (loop,) = inner_loops(functions(listing)["tile()"])
    assert len(loop) == 4
    assert [text for text in loop if re.search(TILES["x86-64-v3"].stack, text)] == [spill]
