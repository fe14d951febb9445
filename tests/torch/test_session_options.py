"""Options and providers of ONNX Runtime's sessions, given to both entry points."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

import onnxruntime  # noqa: E402

import ortisan.torch as front  # noqa: E402
from ortisan.errors import OptionError  # noqa: E402
from ortisan.torch.options import front_options  # noqa: E402
from ortisan.torch.session_options import make_session_options  # noqa: E402
from tests.models.nets import WIDTH, Net, close  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.build]

CPU = "CPUExecutionProvider"


def roads(model: Any, **options: Any) -> list[Any]:
    return [front.compile(model, **options), torch.compile(model, backend=front.backend, options=options)]


def test_a_mapping_reaches_the_session_on_both_roads(tmp_path: Path) -> None:
    model, x = Net().eval(), torch.randn(3, WIDTH)
    for index in range(2):
        prefix = str(tmp_path / f"road{index}")
        settings = {"enable_profiling": True, "profile_file_prefix": prefix, "session.intra_op.allow_spinning": "0"}
        fast = roads(model, session_options=settings, providers=CPU)[index]
        with torch.no_grad():
            close(fast(x), model(x))
        del fast
        torch._dynamo.reset()
        assert list(tmp_path.glob(f"road{index}*.json"))


def test_options_of_the_caller_serve_several_sessions() -> None:
    model, options = Net().eval(), onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    fast = front.compile(model, session_options=options, providers=[(CPU, {})])
    with torch.no_grad():
        for rows in (3, 5, 3):
            x = torch.randn(rows, WIDTH)
            close(fast(x), model(x))
    assert fast.cache_info().misses == 2
    assert [entry.runner.session.get_session_options().intra_op_num_threads for entry in fast.entries()] == [1, 1]


def test_without_any_there_are_as_many_threads_as_torch_has() -> None:
    assert make_session_options(None).intra_op_num_threads == torch.get_num_threads()
    chosen = make_session_options({"intra_op_num_threads": 3, "session.set_denormal_as_zero": "1"})
    assert chosen.intra_op_num_threads == 3
    assert chosen.get_session_config_entry("session.set_denormal_as_zero") == "1"


def test_a_wrapper_with_a_mapping_is_pickled() -> None:
    fast = pickle.loads(pickle.dumps(front.compile(Net(), session_options={"intra_op_num_threads": 2})))
    assert fast.options.session_options == {"intra_op_num_threads": 2}


@pytest.mark.parametrize(
    "options, message",
    [
        ({"session_options": 4}, "session_options must be an onnxruntime.SessionOptions or a mapping, not 4"),
        ({"session_options": {"threads": 4}}, "session_options: onnxruntime.SessionOptions has no attribute 'threads'"),
        ({"session_options": {"register_custom_ops_library": 1}}, "has no attribute 'register_custom_ops_library'"),
        ({"session_options": {3: 4}}, "has no attribute 3"),
        ({"session_options": {"intra_op_num_threads": "two"}}, "'intra_op_num_threads' can't be 'two'"),
        ({"session_options": {"session.intra_op.allow_spinning": 0}}, "'session.intra_op.allow_spinning' can't be 0"),
        (
            {"providers": ["NoProvider"]},
            "providers: this onnxruntime has no 'NoProvider'; it has .*CPUExecutionProvider",
        ),
        ({"providers": 3}, "providers must be names, or pairs of a name and a mapping of options, not 3"),
        ({"providers": [(CPU, 3)]}, "providers must be names, or pairs"),
    ],
)
def test_what_is_wrong_is_one_sentence(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        front_options(options)
    assert "\n" not in str(caught.value)
    with pytest.raises(OptionError, match=message):
        torch.compile(Net(), backend=front.backend, options=options)(torch.randn(3, WIDTH))
