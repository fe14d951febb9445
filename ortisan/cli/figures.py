"""Errors and times as tables, for a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Sequence

from ortisan.checks.bench import Bench
from ortisan.checks.compare import Difference
from ortisan.checks.noise import Noise
from ortisan.checks.verify import Verification
from ortisan.checks.work import Work, largest
from ortisan.cli.screen import number, out, plural, row, say, table

_MOST_ROWS = 20
_MOST_ULP = 1000
"""Above this the figure is of elements near zero, where the distance of neighbours says nothing."""
_RESTLESS = 2.0
"""The median over the best run on a machine that has other things to do."""


def show_verification(verification: Verification, *, compiled: bool = True) -> None:
    worst = verification.worst()
    what = "The compiled model" if compiled else "Nothing is compiled in it; the model"
    what += f", {verification.how}," if verification.emulated else ""
    state = "agrees with" if verification.passed else "DIFFERS from"
    say(f"{what} {state} {verification.reference}, on {plural(len(verification.cases), 'set')} of inputs:")
    has_ulp = any(_ulp(figure.difference) for figure in worst.values())
    columns = ["  output", "max abs", "max rel", *(["max ulp"] if has_ulp else []), "cosine", ""]
    lines = table(*columns, right=tuple(range(1, len(columns) - 1)))
    for name, figure in list(worst.items())[:_MOST_ROWS]:
        d = figure.difference
        verdict = ("ok" if figure.noise is None else "noisy") if figure.passed else (d.problem or f"at {figure.case}")
        ulp = [_ulp(d) or "-"] if has_ulp else []
        row(lines, f"  {name}", number(d.max_abs), number(d.max_rel), *ulp, f"{d.cosine:.7f}", verdict)
    out().print(lines)
    if len(worst) > _MOST_ROWS:
        say(f"  and {len(worst) - _MOST_ROWS} more outputs (--json has all)")
    for name, figure in list(verification.noisy.items())[:_MOST_ROWS]:
        if figure.passed and figure.noise is not None:
            say(f"'{name}' moves by itself: {_noise(figure.noise)}. It was judged by that, each custom op by itself.")


def show_work(works: Sequence[Work]) -> None:
    """The launches of a run; the kernels of the one that moved most."""
    if not works:
        return
    most = largest(works)
    for work in works:
        moved = f"{_bytes(work.loaded)} loaded, {_bytes(work.stored)} stored"
        say(f"{plural(work.launches, 'launch', 'launches')} at {work.case}: {moved}.")
    lines = table(f"  kernel, at {most.case}", "launches", "blocks", "loaded", "stored", right=(1, 2, 3, 4))
    ranked = sorted(most.kernels, key=lambda kernel: -kernel.launches)
    for kernel in ranked[:_MOST_ROWS]:
        counts = (kernel.launches, kernel.blocks, _bytes(kernel.loaded), _bytes(kernel.stored))
        row(lines, f"  {kernel.kernel}", *counts)
    out().print(lines)
    if len(ranked) > _MOST_ROWS:
        say(f"  and {len(ranked) - _MOST_ROWS} more kernels (--json has all)")


def _bytes(count: int) -> str:
    """In the largest unit of which there is at least one."""
    units = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))
    return next((f"{count / size:.3g} {unit}" for unit, size in units if count >= size), f"{count} B")


def _noise(noise: Noise) -> str:
    if noise.unstable:
        return f"when its inputs or weights move by a few ulps, {noise.unstable}"
    return f"by {number(noise.max_abs)} when ONNX Runtime optimizes it, or inputs or weights move by a few ulps"


def _ulp(difference: Difference) -> str:
    return f"{difference.max_ulp:.0f}" if 0 <= difference.max_ulp <= _MOST_ULP else ""


def show_benches(benches: Sequence[Bench]) -> None:
    """One row each; `benches` are against one rival."""
    cases = {bench.case for bench in benches}
    say(f"Against {benches[0].against}{f', at {benches[0].case}' if len(cases) == 1 else ''}:")
    first = ["  at"] if len(cases) > 1 else []
    columns = [*first, "threads", "compiled", "ONNX Runtime", "best of each", "ratio"]
    columns[0] = f"  {columns[0].strip()}"
    lines = table(*columns, right=tuple(range(len(first), len(columns))))
    for bench in benches:
        ours, theirs = bench.compiled, bench.ort
        at = [f"  {bench.case}"] if first else []
        best = f"{ours.best:.3g} / {theirs.best:.3g} ms"
        threads = bench.threads if bench.threads is not None else "all"
        row(lines, *at, threads, f"{ours.median:.3g} ms", f"{theirs.median:.3g} ms", best, f"{bench.ratio:.2f}x")
    out().print(lines)
    _show_unrest(benches)


def _show_unrest(benches: Sequence[Bench]) -> None:
    """The ratio is of medians; on a busy machine they say little."""
    restless = {bench: max(t.median / t.best for t in (bench.compiled, bench.ort) if t.best > 0) for bench in benches}
    worst = max(restless, key=lambda bench: restless[bench])
    if restless[worst] > _RESTLESS:
        best = worst.ort.best / worst.compiled.best
        say(
            f"The machine was busy: a median is {restless[worst]:.1f} times its best run. Ratios are of medians; of "
            f"the best runs it is {best:.2f}x{'' if len(benches) == 1 else f' at {worst.case}'}. Time it again."
        )
