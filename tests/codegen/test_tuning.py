"""Which blocking is chosen, and when the machine and the cache are asked. Times are made up, but for the last tests."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

import ortisan
from ortisan.codegen.cpu.isa import ISAS, find_isa
from ortisan.codegen.cpu.machine import Machine, cpu_model, this_machine
from ortisan.codegen.cpu.tune import choose as tuning_module
from ortisan.codegen.cpu.tune.blocking import DEFAULT, Blocking, Product, as_numbers, candidates
from ortisan.codegen.cpu.tune.choices import Tuning, by_cost_model
from ortisan.codegen.cpu.tune.choose import tune
from ortisan.codegen.cpu.tune.race import Race
from ortisan.codegen.cpu.tune.timer import load_timer, render_timer
from ortisan.codegen.tools.cmake import KERNEL_FLAGS
from ortisan.errors import OptionError, ToolchainError
from ortisan.pipeline.generate import render_sources
from ortisan.registry.dtypes import DType
from tests.models.mlp import mlp

F32 = DType.FLOAT32
V3 = ISAS["x86-64-v3"]
MACHINE = Machine("a CPU", 4, 32 << 20)
WIDE = replace(DEFAULT, band=256)
ONE = Product(F32, 768, (3072,), 512, 512)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ORTISAN_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@dataclass
class FakeTimer:
    """Cuts take 1 s, but for those that `seconds` names."""

    seconds: Callable[[Blocking, int], float] = lambda blocking, threads: 1.0
    calls: list[dict[str, Any]] = field(default_factory=list)

    def launches(self, **given: Any) -> Sequence[tuple[Any, ...]]:
        """Only the number of bands is not a blocking's own."""
        return [(depth, -(-given["rows"] // band), *rest) for depth, band, *rest in given["blockings"]]

    def time_products(self, **given: Any) -> Sequence[float]:
        self.calls.append(given)
        return [self.seconds(Blocking(*blocking), given["threads"]) for blocking in given["blockings"]]


def fast(blocking: Blocking, gain: float = 0.5) -> FakeTimer:
    return FakeTimer(lambda c, threads: 1 - gain if c == blocking else 1.0)


def choose(timer: Any, *products: Product, mode: Any = "auto", **options: Any) -> Tuning:
    settings = {"isa": V3, "weight_bytes": 100 << 20, "version": "1", "machine": MACHINE, **options}
    return tune(products or (ONE,), mode=mode, timer=timer, **settings)


def chosen(tuning: Tuning) -> list[tuple[Blocking, str]]:
    return [(choice.blocking, choice.source) for choice in tuning.choices]


def test_the_fastest_wins() -> None:
    tuning = choose(fast(WIDE))
    assert chosen(tuning) == [(WIDE, "measured")]
    assert tuning.choices[0].seconds == {"1": 0.5, "4": 0.5}
    assert tuning.choices[0].model_seconds == {"1": 1.0, "4": 1.0}
    assert tuning.table(ONE)[0].blocking == WIDE


def test_the_machine_is_asked_for_when_something_is_timed() -> None:
    asked: list[int] = []
    timer = fast(WIDE)
    for _ in range(2):
        choose(timer, before_timing=lambda: asked.append(len(timer.calls)))
    assert asked == [0]


def test_a_small_gain_is_noise() -> None:
    assert chosen(choose(fast(WIDE, 0.019))) == [(DEFAULT, "measured")]
    assert chosen(choose(fast(WIDE, 0.021), weight_bytes=1 << 20)) == [(WIDE, "measured")]


def test_both_numbers_of_threads_count() -> None:
    def seconds(blocking: Blocking, threads: int) -> float:
        return {(WIDE, 1): 0.5, (WIDE, 4): 1.01}.get((blocking, threads), 1.0)

    assert chosen(choose(FakeTimer(seconds))) == [(WIDE, "measured")]
    slower = FakeTimer(
        lambda blocking, threads: 1.1 if (blocking, threads) == (WIDE, 4) else seconds(blocking, threads)
    )
    assert chosen(choose(slower, weight_bytes=1 << 20)) == [(DEFAULT, "measured")]


def test_one_core_is_timed_once() -> None:
    timer = fast(WIDE)
    choose(timer, machine=replace(MACHINE, threads=1))
    assert [call["threads"] for call in timer.calls] == [1, 1]


def test_a_gain_within_the_noise_is_none() -> None:
    times = {1: [1.0, 0.9, 1.2]}
    assert Race((DEFAULT, WIDE), times).winner() == DEFAULT
    assert Race((DEFAULT, WIDE), {1: [1.2, 0.9, 1.0]}).winner() == DEFAULT
    assert Race((DEFAULT, WIDE), {1: [1.0, 0.9, 1.05]}).winner() == WIDE


@pytest.mark.parametrize("times", [[0.0, 0.0, 0.0], [0.0, 0.5, 1.0], [1.0, 0.5, 0.0]])
def test_times_of_0_choose_nothing(times: list[float]) -> None:
    assert Race((DEFAULT, WIDE), {1: times}).winner() == DEFAULT


def test_the_winner_must_win_twice() -> None:
    timer = FakeTimer(lambda blocking, threads: 0.5 if blocking == WIDE and len(timer.calls) <= 2 else 1.0)
    assert chosen(choose(timer)) == [(DEFAULT, "measured")]
    assert len(timer.calls) == 4
    assert [call["blockings"] for call in timer.calls[2:]] == [
        [as_numbers(blocking) for blocking in (DEFAULT, WIDE, DEFAULT)]
    ] * 2


def test_the_default_runs_at_both_ends() -> None:
    timer = FakeTimer()
    choose(timer)
    (problem, _), *_ = ONE.sizes()
    expected = [as_numbers(blocking) for blocking in (*candidates(problem, "auto"), DEFAULT)]
    assert [call["blockings"] for call in timer.calls] == [expected, expected]
    assert timer.calls[0]["blockings"][0] == timer.calls[0]["blockings"][-1] == as_numbers(DEFAULT)


@pytest.mark.parametrize(
    "weight_bytes, copies", [(0, 1), (9 << 20, 1), (30 << 20, 3), (100 << 20, 7), (10 << 30, 7)], ids=str
)
def test_weights_are_as_cold_as_in_the_model(weight_bytes: int, copies: int) -> None:
    timer = FakeTimer()
    choose(timer, weight_bytes=weight_bytes)
    assert {call["copies"] for call in timer.calls} == {copies}


def test_what_was_measured_is_not_measured_again() -> None:
    first = choose(fast(WIDE))
    again = choose(None)
    assert chosen(again) == [(WIDE, "from cache")]
    assert again.choices[0].seconds == first.choices[0].seconds


@pytest.mark.parametrize(
    "other",
    [
        {"machine": replace(MACHINE, cpu="another CPU")},
        {"machine": replace(MACHINE, threads=2)},
        {"isa": ISAS["x86-64-v2"]},
        {"version": "2"},
        {"weight_bytes": 5 << 20},
        {"mode": "full"},
    ],
    ids=lambda other: next(iter(other)),
)
def test_what_holds_elsewhere_is_not_taken(other: dict[str, Any]) -> None:
    choose(fast(WIDE))
    timer = FakeTimer()
    assert chosen(choose(timer, **other)) == [(DEFAULT, "measured")]
    assert timer.calls


@pytest.mark.parametrize(
    "other", [replace(ONE, depth=760), replace(ONE, columns=(3072, 1)), replace(ONE, low=513, high=513)]
)
def test_another_size_is_another_choice(other: Product) -> None:
    choose(fast(WIDE))
    assert chosen(choose(FakeTimer(), other)) == [(DEFAULT, "measured")]


def test_other_kernels_are_another_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    choose(fast(WIDE))
    monkeypatch.setattr(tuning_module, "render_timer", lambda isa: {"gemm.h": "changed"})
    assert chosen(choose(FakeTimer())) == [(DEFAULT, "measured")]


def test_a_choice_among_all_counts_for_auto_too() -> None:
    rare = Blocking(512, 192, 100_000, True)
    assert chosen(choose(fast(rare), mode="full")) == [(rare, "measured")]
    assert chosen(choose(None)) == [(rare, "from cache")]


def test_a_product_of_any_rows_is_tuned_for_some() -> None:
    tuning = choose(
        FakeTimer(lambda blocking, threads: 0.5 if blocking == WIDE else 1.0), replace(ONE, low=0, high=None)
    )
    assert [choice.problem.rows for choice in tuning.choices] == [1, 8, 32, 128, 512]
    assert [(row.rows, row.blocking) for row in tuning.table(replace(ONE, low=0, high=None))] == [
        (256, DEFAULT),
        (None, WIDE),
    ]


def test_integers_are_not_timed() -> None:
    timer = FakeTimer()
    assert chosen(choose(timer, replace(ONE, dtype=DType.INT32))) == [(DEFAULT, "cost model")]
    assert timer.calls == []


def test_when_the_time_is_up_the_next_build_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10_000, 15))
    monkeypatch.setattr(tuning_module.time, "monotonic", lambda: float(next(clock)))
    products = [replace(ONE, low=rows, high=rows) for rows in (40, 20, 30)]
    tuning = choose(FakeTimer(), *products)
    assert tuning.note == "the time was up with 2 sizes not timed"
    assert {choice.problem.rows: choice.source for choice in tuning.choices} == {
        20: "measured",
        30: "cost model",
        40: "cost model",
    }
    monkeypatch.setattr(tuning_module.time, "monotonic", lambda: 0.0)
    sources = {choice.problem.rows: choice.source for choice in choose(FakeTimer(), *products).choices}
    assert sources == {20: "from cache", 30: "measured", 40: "measured"}


def test_a_small_model_takes_less_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10_000, 2))
    monkeypatch.setattr(tuning_module.time, "monotonic", lambda: float(next(clock)))
    products = [replace(ONE, low=rows, high=rows) for rows in (40, 20, 30)]
    assert choose(FakeTimer(), *products, weight_bytes=4 << 20).note == "the time was up with 2 sizes not timed"


@pytest.mark.parametrize("error", [ToolchainError("No C++ compiler was found."), RuntimeError("broken"), MemoryError()])
def test_what_keeps_it_from_timing_is_a_warning(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(isa: Any, say: Any) -> Any:
        raise error

    monkeypatch.setattr(tuning_module, "load_timer", fail)
    reason = str(error).rstrip(".") or "MemoryError"
    with pytest.warns(UserWarning, match=re.escape(f"({reason}); tune='off'")):
        tuning = choose(None)
    assert chosen(tuning) == [(DEFAULT, "cost model")]
    assert tuning.note == reason


@pytest.mark.parametrize("blocking", [[1], [0, 1, 1, True], [2**40, 1, 1, True], ["a", 1, 1, True], None])
def test_an_answer_of_another_form_is_measured_again(blocking: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = {"blocking": blocking, "seconds": {}, "cost_model_seconds": {}, "noise": 0.0}
    monkeypatch.setattr(tuning_module.tuning_cache, "look_up", lambda facts: answer)
    assert chosen(choose(fast(WIDE))) == [(WIDE, "measured")]


def test_tuning_survives_the_manifest() -> None:
    tuning = choose(fast(WIDE), ONE, replace(ONE, depth=64))
    section = json.loads(json.dumps(tuning.to_json([ONE, replace(ONE, depth=64)])))
    assert Tuning.from_json(section) == tuning
    assert [row["depth"] for row in tuning.to_json([ONE])["products"]] == [768]


def test_modes_are_checked() -> None:
    with pytest.raises(OptionError, match="tune must be 'auto', 'off' or 'full', not 'on'"):
        ortisan.compile(mlp(), tune="on")  # type: ignore[arg-type]


def forbid(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("asked for the machine or the cache")

    for name in ("load_timer", "this_machine"):
        monkeypatch.setattr(tuning_module, name, refuse)
    for name in ("look_up", "remember"):
        monkeypatch.setattr(tuning_module.tuning_cache, name, refuse)


def test_off_asks_neither_the_machine_nor_the_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    choose(fast(WIDE))
    before = (cache / "tuning.sqlite").read_bytes()
    forbid(monkeypatch)
    compiled = ortisan.compile(mlp(sizes=(768, 3072), opset=17), tune="off")
    assert {source for _, source in chosen(Tuning.from_json(compiled.tuning))} == {"cost model"}
    assert render_sources(compiled) == render_sources(ortisan.compile(mlp(sizes=(768, 3072))))
    assert (cache / "tuning.sqlite").read_bytes() == before
    assert by_cost_model([ONE]).table(ONE)[0].blocking == DEFAULT


@pytest.mark.parametrize("target", ["cpu:aarch64", "cpu:x86-64-v4", "reference"])
def test_a_target_that_does_not_run_here_is_not_timed(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from ortisan.codegen.cpu import backend as planning

    forbid(monkeypatch)
    monkeypatch.setattr(planning, "why_not_run", lambda isa: "this machine lacks avx512f")
    compiled = ortisan.compile(mlp(), target=target, tune="auto")
    assert compiled.tuning["note"]
    assert {source for _, source in chosen(Tuning.from_json(compiled.tuning))} <= {"cost model"}


def test_products_too_small_to_matter_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    forbid(monkeypatch)
    compiled = ortisan.compile(mlp(sizes=(64, 96, 8)), tune="auto")
    assert "too small to time" in compiled.tuning["note"]
    assert {source for _, source in chosen(Tuning.from_json(compiled.tuning))} == {"cost model"}
    with pytest.raises(ortisan.OrtisanError, match="asked for the machine"):
        ortisan.compile(mlp(sizes=(768, 3072)), tune="auto")


def compile_with_times(monkeypatch: pytest.MonkeyPatch, timer: Any) -> ortisan.Compilation:
    monkeypatch.setattr(tuning_module, "load_timer", lambda isa, say: timer)
    return ortisan.compile(mlp(sizes=(64, 96, 8)), tune="full", dims={"batch": (1, 512)})


def test_the_same_cache_gives_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    def seconds(blocking: Blocking, threads: int) -> float:
        return 0.5 if blocking.work == 25_000 else 1.0

    first = compile_with_times(monkeypatch, FakeTimer(seconds))
    other = compile_with_times(monkeypatch, None)
    assert {row["from"] for row in first.tuning["products"]} == {"measured"}
    assert {row["from"] for row in other.tuning["products"]} == {"from cache"}
    assert render_sources(first) == render_sources(other)
    assert first.domain == other.domain
    default = ortisan.compile(mlp(sizes=(64, 96, 8)), dims={"batch": (1, 512)})
    assert render_sources(first) != render_sources(default)
    assert first.domain != default.domain


def test_the_domain_is_that_of_the_cuts_and_not_of_the_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    tuned = compile_with_times(monkeypatch, FakeTimer())
    default = ortisan.compile(mlp(sizes=(64, 96, 8)), dims={"batch": (1, 512)})
    assert tuned.domain == default.domain
    assert render_sources(tuned) == render_sources(default)


def test_a_conversion_keeps_the_cuts_without_a_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = compile_with_times(
        monkeypatch, FakeTimer(lambda blocking, threads: 0.5 if blocking.work == 25_000 else 1.0)
    )
    (cache / "tuning.sqlite").unlink()
    forbid(monkeypatch)
    converted = ortisan.convert_graph(mlp(sizes=(64, 96, 8)), compiled)
    assert converted.graph.node[0].domain == compiled.domain


def test_the_machine_has_a_name() -> None:
    assert this_machine().threads >= 1
    assert this_machine().cpu
    text = "processor\t: 0\nvendor_id\t: Maker\nmodel\t\t: 7\nmodel name\t: Chip\nflags\t: a b\n\nprocessor\t: 1\nmodel\t: 8\n"
    assert cpu_model(text) == "vendor_id Maker, model 7, model name Chip"
    assert cpu_model("nothing") == cpu_model("")


def test_kernels_are_timed_with_the_flags_they_are_built_with() -> None:
    def flags(sources: Mapping[str, str]) -> list[str]:
        found = re.search(r"target_compile_options\(kernels PRIVATE\n(.*?)\)", sources["CMakeLists.txt"], re.DOTALL)
        assert found is not None
        return found[1].split()

    library = render_sources(ortisan.compile(mlp(), target="cpu:x86-64-v3"))
    assert flags(render_timer(V3)) == flags(library) == [*V3.flags, *KERNEL_FLAGS]


@pytest.fixture(scope="module")
def timer_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("timer")


@pytest.fixture(scope="module")
def real_timer(timer_cache: Path) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ORTISAN_CACHE_DIR", str(timer_cache))
        return load_timer(find_isa("native"))


def arguments(**changes: Any) -> dict[str, Any]:
    blockings = [as_numbers(DEFAULT), (8, 5, 1, False), (10**6, 10**6, 10**9, True)]
    usual = {
        "type": "float32",
        "rows": 13,
        "depth": 33,
        "columns": [5, 40],
        "blockings": blockings,
        "threads": 2,
        "copies": 3,
    }
    return {**usual, "seconds": 0.001, **changes}


@dataclass
class Recording:
    """The real launches, and what would be timed."""

    timer: Any
    timed: list[tuple[int, int, int, bool]] = field(default_factory=list)

    def launches(self, **given: Any) -> Sequence[tuple[Any, ...]]:
        return self.timer.launches(**given)

    def time_products(self, **given: Any) -> Sequence[float]:
        self.timed = given["blockings"][:-1]
        return [1.0] * len(given["blockings"])


@pytest.mark.build
@pytest.mark.parametrize("mode", ["auto", "full"])
@pytest.mark.parametrize("dtype", [F32, DType.FLOAT64, DType.FLOAT16])
@pytest.mark.parametrize("rows", [1, 2, 4, 5, 6, 7, 128, 300])
def test_no_two_candidates_come_to_the_same(rows: int, dtype: DType, mode: str, real_timer: Any) -> None:
    timer = Recording(real_timer)
    choose(timer, Product(dtype, 768, (768, 40), rows, rows), mode=mode)
    size = {"type": dtype.value, "rows": rows, "depth": 768, "columns": [768, 40]}
    launches = real_timer.launches(**size, blockings=timer.timed)
    assert len(set(launches)) == len(launches)
    (problem, _), *_ = Product(dtype, 768, (768, 40), rows, rows).sizes()
    every = real_timer.launches(**size, blockings=[as_numbers(b) for b in candidates(problem, mode)])  # type: ignore[arg-type]
    assert set(launches) == set(every)


@pytest.mark.build
def test_launches_refuse_nonsense(real_timer: Any) -> None:
    size = {"type": "float32", "rows": 1, "depth": 8, "columns": [8]}
    assert real_timer.launches(**size, blockings=[]) == []
    with pytest.raises(ValueError, match="not timed"):
        real_timer.launches(**{**size, "type": "int8"}, blockings=[])
    with pytest.raises(ValueError, match="must be at least 1"):
        real_timer.launches(**size, blockings=[(1, 0, 1, True)])


@pytest.mark.build
@pytest.mark.parametrize("type_", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("rows", [1, 2, 13, 300])
def test_the_real_timer_times_every_cut(type_: str, rows: int, real_timer: Any) -> None:
    seconds = real_timer.time_products(**arguments(type=type_, rows=rows))
    assert len(seconds) == 3
    assert all(0 < value < 60 for value in seconds)
    assert len(real_timer.time_products(**arguments(type=type_, rows=rows, threads=1))) == 3


@pytest.mark.build
@pytest.mark.parametrize(
    "changes, message",
    [
        ({"type": "int8"}, "not timed"),
        ({"rows": 0}, "at least 1"),
        ({"columns": []}, "at least 1"),
        ({"columns": [4, 0]}, "at least 1"),
        ({"threads": 0}, "threads must be"),
        ({"copies": 0}, "copies at least 1"),
        ({"blockings": [(0, 1, 1, True)]}, "must be at least 1"),
    ],
)
def test_the_real_timer_refuses_nonsense(changes: dict[str, Any], message: str, real_timer: Any) -> None:
    with pytest.raises(ValueError, match=message):
        real_timer.time_products(**arguments(**changes))


@pytest.mark.build
def test_the_real_timer_is_built_once(real_timer: Any, timer_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORTISAN_CACHE_DIR", str(timer_cache))
    said: list[str] = []
    load_timer(find_isa("native"), said.append)
    assert said == []


@pytest.mark.build
def test_a_build_is_tuned_and_says_so(timer_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORTISAN_CACHE_DIR", str(timer_cache))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first = ortisan.build(mlp(), tmp_path / "a", keep="all", tune="full", dims={"batch": (1, 16)})
        second = ortisan.build(mlp(), tmp_path / "b", keep="all", tune="full", dims={"batch": (1, 16)})
    assert {row["from"] for row in first.manifest["tuning"]["products"]} == {"measured"}
    assert {row["from"] for row in second.manifest["tuning"]["products"]} == {"from cache"}
    assert {row["rows"] for row in first.manifest["tuning"]["products"]} == {1, 8}
    assert all(
        row["seconds"].keys() == row["cost_model_seconds"].keys() for row in first.manifest["tuning"]["products"]
    )
    assert first.manifest["sources_sha256"] == second.manifest["sources_sha256"]
    assert first.manifest["domain"] == second.manifest["domain"]
    only = ortisan.build(mlp(), tmp_path / "c", sources_only=True)
    assert only.manifest["tuning"]["mode"] == "off"
    assert {row["from"] for row in only.manifest["tuning"]["products"]} == {"cost model"}
