"""The benchmark's models, peers, timing and writers. Nothing here depends on how fast anything is."""

from __future__ import annotations

import importlib.util
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from rich.console import Console
from typer.testing import CliRunner

import ortisan
from benchmarks import fresh, layers, precision, products, tables, timing
from benchmarks.__main__ import app
from benchmarks.machine import Limits, Machine
from benchmarks.measure import Plan, check_outputs, measure
from benchmarks.models import VitSize
from benchmarks.peers import HUGE, ORT, OURS, PEERS, RIVALS, Subject, read_weights
from benchmarks.plot import draw, speeds
from benchmarks.results import Build, Load, Report, Result, Row, Timed, read_report
from benchmarks.timing import Effort, take_turns
from benchmarks.workloads import WORKLOADS, Fusible, Workload, _bert, _decoder, _vit, as_proto, is_past
from ortisan.converter.flops import node_flops
from ortisan.converter.read.load import load_model
from ortisan.converter.save import save_with_external_data
from ortisan.errors import OptionError
from ortisan.models import BertSize, Gpt2Size, LlamaSize, mobilenet
from ortisan.models.images import Stage
from ortisan.runtime.manifest import plain
from tests.models.sessions import open_session

TINY_VIT = VitSize(layers=1, hidden=128, heads=2, intermediate=64, image=32, patch=16, classes=5)
TINY_BERT = BertSize(layers=1, hidden=128, heads=2, intermediate=64, vocabulary=50, positions=16)
TINY_GPT2 = Gpt2Size(layers=1, hidden=128, heads=2, vocabulary=50, positions=16)
TINY_LLAMA = LlamaSize(layers=2, hidden=128, heads=2, kv_heads=1, intermediate=96, vocabulary=50)
BY_NAME = {workload.name: workload for workload in WORKLOADS}
IMAGES = ("resnet50", "resnet18_batch", "mobilenet", "efficientnet", "yolo", "unet", "mobilenet_v3", "convnext")
OTHERS = ("diffusion", "sound")
SMALL = {
    "bert": _bert("bert", "tiny BERT", TINY_BERT, 2, 7),
    "vit": _vit("vit", "tiny ViT", TINY_VIT),
    "gpt2": _decoder("gpt2", "tiny GPT-2", TINY_GPT2, tokens=7, past=0),
    "gpt2_in_place": _decoder("gpt2_in_place", "tiny step", TINY_GPT2, tokens=1, past=3, capacity=9),
    "llama": _decoder("llama", "tiny Llama", TINY_LLAMA, tokens=1, past=3),
    "mlp": BY_NAME["mlp"],
    "chain": replace(BY_NAME["chain"], feeds=lambda: {name: np.linspace(-3, 3, 99, dtype="f4") for name in "xz"}),
}


def save(workload: Workload, folder: Path) -> Path:
    save_with_external_data(load_model(workload.make()), folder, "model")
    return folder / "model.onnx"


def stock(model: Path, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    return open_session(model, plain=True).run(None, feeds)


@pytest.mark.parametrize("name", SMALL)
def test_the_models_compile_to_what_onnx_runtime_computes(name: str, tmp_path: Path) -> None:
    workload = SMALL[name]
    onnx.checker.check_model(as_proto(workload.make()), full_check=True)
    compiled = ortisan.compile(workload.make(), target="reference")
    assert not compiled.left_out
    feeds = workload.feeds()
    assert check_outputs(compiled.run(feeds), stock(save(workload, tmp_path), feeds))[1] == ""
    assert not ortisan.compile(workload.make()).left_out


def test_vit_outputs_are_of_order_1(tmp_path: Path) -> None:
    (logits,) = stock(save(SMALL["vit"], tmp_path), {"pixel_values": np.ones((2, 3, 32, 32), np.float32)})
    assert logits.shape == (2, 5)
    assert 0.1 < logits.std() < 10


@pytest.mark.parametrize("name", ["bert", "vit", "mlp", *IMAGES])
def test_the_flops_are_those_of_the_products(name: str) -> None:
    workload = SMALL.get(name) or BY_NAME[name]
    model = _with_fixed_dims(as_proto(workload.make()), workload.feeds())
    inferred = load_model(onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True))
    products = ("MatMul", "Gemm", "Conv")
    assert sum(node_flops(node) for node in inferred.graph if node.op_type in products) == workload.flops


def _with_fixed_dims(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> onnx.ModelProto:
    for value in model.graph.input:
        for dim, size in zip(value.type.tensor_type.shape.dim, feeds[value.name].shape, strict=True):
            dim.dim_value = size
    return model


@pytest.mark.parametrize("size", [TINY_GPT2, TINY_LLAMA])
def test_the_flops_of_a_prompt_are_those_of_the_products(size: Gpt2Size | LlamaSize) -> None:
    """Shapes of a decoder are known when it runs, so that the values are asked for."""
    workload = _decoder("prompt", "", size, tokens=5, past=2)
    model = as_proto(workload.make())
    products = [node for node in model.graph.node if node.op_type in ("MatMul", "Gemm")]
    names = [name for node in products for name in (node.input[0], node.output[0])]
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in dict.fromkeys(names))
    session = ort.InferenceSession(model.SerializeToString())
    shapes = {
        name: array.shape for name, array in zip(dict.fromkeys(names), session.run(None, workload.feeds()), strict=True)
    }
    flops = [2 * np.prod(shapes[node.output[0]]) * shapes[node.input[0]][-1] for node in products]
    assert sum(flops) == workload.flops


@pytest.mark.parametrize("name", ["gpt2_in_place", "llama"])
def test_a_step_reads_its_matrices_and_its_past_and_may_copy_it(name: str, tmp_path: Path) -> None:
    workload = SMALL[name]
    weights = read_weights(save(workload, tmp_path))
    looked_up = {"transformer.wpe.weight", "model.embed_tokens.weight"}
    matrices = sum(array.nbytes for name, array in weights.items() if array.ndim == 2 and name not in looked_up)
    past = sum(array.nbytes for name, array in workload.feeds().items() if is_past(name))
    assert workload.moved_bytes == matrices + past * (1 if workload.capacity else 2)
    assert workload.flops == 0


def test_buffers_hold_the_past_and_nothing_behind_it() -> None:
    given, ours = SMALL["gpt2_in_place"].feeds(), SMALL["gpt2_in_place"].our_feeds()
    for name, array in given.items():
        filled = ours[name][:, :, :3] if is_past(name) else ours[name]
        np.testing.assert_array_equal(filled, array)
        assert not is_past(name) or (ours[name].shape[2] == 9 and np.isnan(ours[name][:, :, 3:]).all())


def test_workloads_of_one_model_share_what_is_built() -> None:
    keys = {name: workload.key for name, workload in BY_NAME.items() if name.startswith(("gpt2", "llama", "bert"))}
    assert keys.pop("gpt2_in_place_512") == "gpt2_in_place"
    assert set(keys.values()) == {"gpt2", "llama", "bert", "bert_batch"}


def test_every_transformer_is_described_to_the_optimizer() -> None:
    assert BY_NAME["vit"].fusible == Fusible("vit", 12, 768)
    assert {name for name, workload in BY_NAME.items() if workload.fusible is None} == {
        *IMAGES,
        *OTHERS,
        "mlp",
        "chain",
    }


def test_the_padded_workload_hides_keys_but_no_whole_row() -> None:
    seen = BY_NAME["bert_batch"].feeds()["attention_mask"].sum(1)
    assert (seen.min(), seen.max(), len(set(seen))) == (32, 64, 8)


@pytest.mark.torch
@pytest.mark.parametrize("name", SMALL)
def test_the_torch_modules_compute_the_same(name: str, tmp_path: Path) -> None:
    import torch

    from benchmarks.torch_models import module_of

    model, feeds = save(SMALL[name], tmp_path), SMALL[name].feeds()
    module = module_of(read_weights(model))
    outputs = module(**{key: torch.from_numpy(array) for key, array in feeds.items()})
    assert check_outputs([output.numpy() for output in outputs], stock(model, feeds))[1] == ""


@pytest.mark.build
@pytest.mark.parametrize("peer", ["ortisan", "ortisan-huge", "ort", "ort-fused", "openvino"])
@pytest.mark.parametrize("name", ["bert", "vit", "gpt2_in_place"])
def test_the_peers_compute_the_same(name: str, peer: str, artifacts: dict[str, Subject]) -> None:
    if peer == "openvino":
        pytest.importorskip("openvino", reason="openvino not installed: pip install 'ortisan[bench]'")
    subject = artifacts[name]
    for threads in (1, 2):
        opened = PEERS[peer].open(subject, threads)
        for _ in range(2):
            assert check_outputs(opened.arrays(opened.run()), stock(subject.model, subject.feeds))[1] == ""


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Subject]:
    made = {}
    for name in ("bert", "vit", "gpt2_in_place"):
        folder = tmp_path_factory.mktemp(name)
        model, cache = save(SMALL[name], folder), "in-place" if SMALL[name].capacity else "as-is"
        artifact = ortisan.build(model, folder / "artifact", name=name, keep="all", verify=False, cache=cache)
        made[name] = Subject(SMALL[name], model, SMALL[name].feeds(), artifact)
    return made


@pytest.mark.parametrize("size", [TINY_GPT2, TINY_LLAMA])
@pytest.mark.parametrize("tokens, past", [(5, 0), (1, 4)])
def test_decoders_with_the_ops_of_onnx_runtime(
    size: Gpt2Size | LlamaSize, tokens: int, past: int, tmp_path: Path
) -> None:
    workload = _decoder("decoder", "", size, tokens=tokens, past=past)
    subject = Subject(workload, save(workload, tmp_path), workload.feeds(), None)
    opened = PEERS["ort-fused"].open(subject, 1)
    assert check_outputs(opened.arrays(opened.run()), stock(subject.model, subject.feeds))[1] == ""
    ops = [node.op_type for node in onnx.load(tmp_path / "fused.onnx", load_external_data=False).graph.node]
    assert ops.count("GroupQueryAttention") == size.layers
    assert ops.count("LayerNormalization") + ops.count("SimplifiedLayerNormalization") == 2 * size.layers + 1
    assert not {"Softmax", "ReduceMean", "Cos"} & set(ops)


@pytest.mark.build
def test_a_workload_is_measured(tmp_path: Path) -> None:
    plan = Plan((OURS, HUGE, ORT, "ort-fused"), (1,), Effort(0.0, 1), loads=1, cold_builds=True)
    result = measure(SMALL["mlp"], tmp_path, plan, lambda step: None)
    (row,) = result.rows
    assert set(row.timed) == set(result.load) == {OURS, ORT}
    assert "no optimizer" in result.absent["ort-fused"]
    assert not row.timed[OURS].problem
    assert result.build.cold is not None
    assert result.build.library_bytes > 0
    assert all(load.private_mb > load.base_mb > 0 for load in result.load.values())


@pytest.mark.build
def test_precisions_are_measured_with_their_errors(tmp_path: Path) -> None:
    found = precision.rows(BY_NAME["mlp"], tmp_path, ("keep", "bf16"), 0.1)
    by_name = {row[2]: row for row in found}
    assert {"ORT", "keep", "bf16"} <= by_name.keys()
    assert float(by_name["keep"][-1]) < 1e-5 < float(by_name["bf16"][-1]) < 2e-2


@pytest.mark.build
def test_decoders_are_measured_on_both_kinds_of_pages_and_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[str] = []
    build = ortisan.build
    monkeypatch.setattr(ortisan, "build", lambda *args, **named: (built.append(named["name"]), build(*args, **named)))
    plan = Plan((OURS, HUGE, ORT), (1,), Effort(0.0, 1), loads=1, cold_builds=False)
    grown = replace(SMALL["gpt2_in_place"], name="gpt2_grown", capacity=0)
    for workload in (grown, SMALL["gpt2_in_place"]):
        result = measure(workload, tmp_path, plan, lambda step: None)
        assert set(result.rows[0].timed) == set(result.load) == {OURS, HUGE, ORT}
        assert not any(timed.problem for timed in result.rows[0].timed.values())
        assert result.gbytes(result.rows[0]) is not None
        assert result.reads_weights
    prompt = measure(SMALL["gpt2"], tmp_path, replace(plan, peers=(OURS,)), lambda step: None)
    assert not prompt.reads_weights
    assert not prompt.rows[0].timed[OURS].problem
    assert built == ["gpt2", "gpt2_in_place"]


@pytest.mark.build
def test_the_machine_has_limits(tmp_path: Path) -> None:
    machine = Machine(tmp_path, (1, 2))
    machine.measure()
    assert set(machine.limits) == {1, 2}
    assert machine.limits[1].gflops > 0 < machine.limits[1].read
    assert machine.limits[2].read_mapped


def test_the_better_limits_are_kept() -> None:
    assert Limits(1, 5, None).better_of(Limits(2, 4, 3.0)) == Limits(2, 5, 3.0)
    assert Limits(1, 5, None).better_of(Limits(2, 4, None)).read_2m is None
    assert Limits(1, 5, None, 7).better_of(Limits(2, 4, None, 8)).read_mapped == 8


def test_a_process_that_fails_says_which_model() -> None:
    with pytest.raises(RuntimeError, match=r"nowhere\.onnx"):
        fresh.measure_load(Path("nowhere.onnx"), None, Path("nothing.npz"), 1)


def test_all_take_turns_equally_often() -> None:
    calls: list[str] = []
    times = take_turns({name: lambda name=name: calls.append(name) for name in "abc"}, Effort(0.0, 4))
    assert [len(times[name]) for name in "abc"] == [4 * 50] * 3
    assert set(calls) == {"a", "b", "c"}


class Clock:
    """Stands for the module `time`; of each `sleep` the process works the next of `shares`, and the last from then on."""

    def __init__(self, *shares: float) -> None:
        self.shares, self.now, self.used = list(shares), 0.0, 0.0

    def perf_counter(self) -> float:
        return self.now

    def process_time(self) -> float:
        return self.used

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.used += seconds * (self.shares.pop(0) if len(self.shares) > 1 else self.shares[0])


@pytest.mark.parametrize(
    "shares, milliseconds", [((0.0,), 2), ((2.0, 1.0, 0.5, 0.05), 8), ((1.0,), 500)], ids=["idle", "spins", "never"]
)
def test_quiet_comes_when_the_threads_are_idle(
    shares: tuple[float, ...], milliseconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(*shares)
    monkeypatch.setattr(timing, "time", clock)
    timing.wait_for_quiet()
    assert 1e3 * clock.now == pytest.approx(milliseconds, abs=2.1 if milliseconds == 500 else 1e-6)


@pytest.mark.parametrize(
    "outputs, problem",
    [
        ([np.ones(3, "f4")], ""),
        ([np.ones(3, "f4") * 1.1], "off by"),
        ([np.ones(4, "f4")], "shape"),
        ([], "0 outputs"),
    ],
)
def test_outputs_are_checked(outputs: list[np.ndarray], problem: str) -> None:
    found = check_outputs(outputs, [np.ones(3, "f4")])[1]
    assert problem in found
    assert bool(found) == bool(problem)


def report() -> Report:
    wrong = Timed(0.1, 0.1, 3, 1.0, "off by 1.0e+00")
    rows = tuple(
        Row(n, {OURS: Timed(2 / n, 3 / n, 9, 1e-6), ORT: Timed(4 / n, 9 / n, 9, 0.0), "openvino": wrong})
        for n in (1, 2)
    )
    load = {OURS: Load(5, 30, 20), ORT: Load(500, 300, 20)}
    one = Result(
        "bert", "BERT [base]", 10**8, 0, False, rows, Build(20.5, 2.25, 10**6), load, {"torch": "torch is missing"}
    )
    two = replace(one, name="chain", title="chain", flops=0, moved_bytes=10**7, absent={}, build=Build(None, None, 0))
    limits = {1: Limits(100, 10, 20), 2: Limits(199, 10, None)}
    return Report("python -m benchmarks", "a CPU, 2 cores", {"onnxruntime": "1.2.3"}, limits, (one, two))


def test_what_follows_from_the_figures() -> None:
    found = report()
    first = found.results[0]
    row = first.rows[0]
    assert (row.ratio(ORT), row.ratio(ORT, median=True), row.ratio("openvino"), row.ratio("torch")) == (
        2,
        3,
        None,
        None,
    )
    assert row.best_peer == ORT
    assert (first.gflops(row), found.share(first, row)) == (50, 0.5)
    assert found.share(found.results[1], row) == pytest.approx(0.25)
    assert found.wrong == ()
    assert speeds(row) == {OURS: 2}


def test_weights_are_compared_with_reads_of_the_same_pages() -> None:
    row = Row(1, {OURS: Timed(2, 2, 9, 0.0), HUGE: Timed(1, 1, 9, 0.0)})
    result = replace(report().results[1], reads_weights=True, moved_bytes=10**7, rows=(row,))
    found = replace(report(), limits={1: Limits(100, 40, 25, 20)}, results=(result,))
    assert (found.share(result, row), found.share(result, row, HUGE)) == (0.25, 0.4)
    assert "20.0 GB/s from a mapped file" in "\n".join(tables.notes(found))
    (pages,) = (grid for grid in tables.grids(found) if "2 MB" in grid.title)
    assert pages.rows[0][5:7] == ("25 %", "40 %")
    assert read_report(json.loads(json.dumps(plain(found.to_json())))) == found


def test_wrong_outputs_of_ours_are_told() -> None:
    found = report()
    row = Row(1, {OURS: Timed(1, 1, 1, 9.0, "off by 9.0e+00")})
    assert replace(found, results=(replace(found.results[0], rows=(row,)),)).wrong == ("BERT [base]: off by 9.0e+00",)


def test_json_comes_back_as_it_was() -> None:
    written = json.loads(json.dumps(plain(report().to_json())))
    assert written["results"][0]["rows"][0]["ratio_best_peer"] == 2
    assert read_report(written) == report()


def test_the_screen_is_100_columns_wide() -> None:
    found = report()
    timed = {name: Timed(1234.5, 1234.5, 9, 1e-6) for name in (OURS, HUGE, *RIVALS)}
    titles = [workload.title for workload in WORKLOADS]
    results = tuple(replace(found.results[0], title=title, rows=(Row(2, timed),)) for title in titles)
    out = io.StringIO()
    tables.show(replace(found, results=results), Console(file=out, width=100))
    text = out.getvalue()
    assert max(map(len, text.splitlines())) <= 100
    assert "…" not in text
    assert all(text.count(title) == 4 for title in titles)


@pytest.mark.parametrize(
    "value, text", [(None, "-"), (1234.5, "1234"), (123.4, "123"), (12.34, "12.3"), (1.234, "1.23"), (0.01234, "0.012")]
)
def test_figures_have_three_digits(value: float | None, text: str) -> None:
    assert tables._figure(value) == text


def test_notes_tell_who_is_absent_and_who_is_wrong() -> None:
    text = "\n".join(tables.notes(report()))
    assert "torch is absent in BERT [base]: torch is missing" in text
    assert "OpenVINO is wrong in chain: off by" in text
    assert "times the work of one" not in text
    crowded = replace(report(), limits={1: Limits(100, 10, None), 2: Limits(120, 10, None)})
    assert "2 threads did only 1.20 times the work of one" in "\n".join(tables.notes(crowded))


def test_markdown_goes_between_the_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n\n{tables.BEGIN}\nold\n{tables.END}\n\nafter\n")
    for _ in range(2):
        tables.put_between_marks(page, tables.markdown(report(), "picture.svg"))
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\n\nafter\n")
    assert "old" not in text
    assert text.count("| BERT [base] | 1 | 2.00 | 3.00 | 4.00 | wrong | 1e-06 |") == 1
    assert "](picture.svg)" in text


def test_a_page_without_marks_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("words")
    with pytest.raises(OptionError, match="lacks the lines"):
        tables.put_between_marks(page, "figures")
    assert page.read_text() == "words"


def test_the_documentation_has_the_marks() -> None:
    text = Path(__file__).parents[1].joinpath("docs", "benchmarks.md").read_text(encoding="utf-8")
    assert text.index(tables.BEGIN) < text.index(tables.END)
    assert all(f"`{workload.name}`" in text for workload in WORKLOADS)
    assert all(f"`{name}`" in text for name in PEERS if name != OURS)


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="matplotlib not installed")
def test_the_plot_is_drawn_twice(tmp_path: Path) -> None:
    png, svg = draw(report(), tmp_path / "plot.png")
    assert png.read_bytes().startswith(b"\x89PNG")
    assert "<svg" in svg.read_text()


def test_the_command_makes_tables_of_a_json_file(tmp_path: Path) -> None:
    source, page = tmp_path / "all.json", tmp_path / "page.md"
    source.write_text(json.dumps(plain(report().to_json())))
    page.write_text(f"{tables.BEGIN}{tables.END}")
    done = CliRunner().invoke(app, ["--from", str(source), "--markdown", str(page)])
    assert done.exit_code == 0, done.output
    assert "BERT [base]" in done.output
    assert "| chain | 2 |" in page.read_text()


def test_figures_that_could_not_be_written_are_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = []
    monkeypatch.setattr("benchmarks.__main__.run_all", lambda *_: measured.append(True) or report())
    done = CliRunner().invoke(app, ["--markdown", str(tmp_path / "no.md")])
    assert isinstance(done.exception, OptionError)
    assert not measured
    done = CliRunner().invoke(app, ["--json", str(tmp_path / "new" / "all.json")])
    assert done.exit_code == 0, done.output
    assert measured
    assert json.loads((tmp_path / "new" / "all.json").read_text())


@pytest.mark.parametrize(
    "arguments", [["--layers", "--only", "bert"], ["--only", "nothing"], ["--peers", "nobody"], ["--threads", "0"]]
)
def test_what_is_not_there_is_refused(arguments: list[str]) -> None:
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2
    assert "Invalid value" in done.output


@pytest.mark.build
def test_the_layers_of_a_network_are_timed(tmp_path: Path) -> None:
    stages = (Stage(2, 16, 1, 2),)
    workload = replace(BY_NAME["mobilenet"], make=lambda: mobilenet(image=16, stages=stages, classes=5))
    workload = replace(workload, feeds=lambda: {"pixel_values": np.ones((3, 3, 16, 16), np.float32)})
    found = layers.measure_layers(workload, tmp_path, 1, 0.0)
    assert [(layer.kernel, layer.size) for layer in found] == [
        ("permute", ""),
        ("conv2d", "3 x 16 x 16 x 3 to 32, 3 x 3 / 2"),
        ("gemm", "192 x 32 x 64"),
        ("depthwise2d", "3 x 8 x 8 x 64, 3 x 3 / 2"),
        ("gemm", "48 x 64 x 16"),
        ("gemm", "48 x 16 x 1280"),
        ("reduce_mean", ""),
        ("gemm", "3 x 1280 x 5"),
    ]
    assert found[2].flops == 2 * 192 * 32 * 64
    assert all(0 < layer.seconds < 1 for layer in found)
    assert len(layers.table("a network", found, 100.0).rows) == len(found) + 1  # and a total


@pytest.mark.build
def test_single_products_are_timed(tmp_path: Path) -> None:
    ((hot, cold),) = products.measure(2, tmp_path, [products.Shape("tiny", 3, 17, 33)], 0.001)
    assert hot > 0
    assert cold > 0
