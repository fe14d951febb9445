from __future__ import annotations

import numpy as np
import pytest

from ortisan.registry.scalars import FLOATS, SCALARS
from tests.ops.arrays import BFLOAT16, special, values
from tests.ops.harness import Case, refused
from tests.tolerances import APPROXIMATE, BLOCK, SAME

INTS = (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64)
UNARY: dict[str, tuple[float, float]] = {
    op: (-9, 9) for row in SCALARS.values() if row.arity == 1 and row.accepts & FLOATS for op in row.onnx
} | {  # op -> (low, high) of the values it is defined on, and the ops that have attributes
    "Exp": (-20, 20), "Log": (1e-3, 50), "Sqrt": (0, 50), "Reciprocal": (0.1, 9), "Sin": (-20, 20), "Cos": (-20, 20),
    "Tan": (-1.4, 1.4), "Asin": (-1, 1), "Acos": (-1, 1), "Acosh": (1, 9), "Atanh": (-0.99, 0.99), "Erf": (-4, 4),
    "Sigmoid": (-20, 20), "Softplus": (-20, 20), "Gelu": (-6, 6), "LeakyRelu": (-9, 9), "Elu": (-9, 9), "Selu": (-9, 9),
    "Celu": (-9, 9), "HardSigmoid": (-9, 9), "ThresholdedRelu": (-9, 9), "Shrink": (-2, 2), "IsInf": (-9, 9),
    "Identity": (-9, 9),
}  # fmt: skip
# Below single precision's rounding of the function itself, ONNX Runtime's own kernels differ by this much.
LOOSE = {
    "Tan": BLOCK,
    "Sinh": APPROXIMATE,
    "Cosh": APPROXIMATE,
    "Gelu": (APPROXIMATE, SAME),
    "Mish": (APPROXIMATE, SAME),
}

CASES = [
    Case(f"{op}_{n}", op, {"x": values(n, low=low, high=high)}, opset=20, tolerance=LOOSE.get(op))
    for op, (low, high) in UNARY.items()
    for n in (7, 67)
]
CASES += [
    Case(f"{op}_special", op, {"x": special(5, 7)}, tolerance=APPROXIMATE)
    for op in UNARY
    if op not in ("Gelu", "Softplus", "Mish", "Tan", "Sin", "Cos")  # ONNX Runtime's are not finite-exact there
]
CASES += [
    Case(
        f"{op}_{np.dtype(t)}",
        op,
        {"x": values(17, dtype=t, low=low, high=high)},
        ort=t is np.float64 and op in ("Exp", "Abs"),
    )
    for op, (low, high) in UNARY.items()
    for t in (np.float64, np.float16, BFLOAT16)
]
CASES += [Case(f"{op}_{np.dtype(t)}", op, {"x": values(23, dtype=t)}, ort=t in (np.int32, np.int64) and op != "Sign")
          for op in ("Abs", "Neg", "Sign") for t in INTS if op != "Neg" or np.dtype(t).kind == "i"]  # fmt: skip
CASES += [
    Case("Gelu_tanh", "Gelu", {"x": values(40)}, {"approximate": "tanh"}, tolerance=(1e-5, 1e-6)),
    Case("LeakyRelu_alpha", "LeakyRelu", {"x": special(33)}, {"alpha": 0.3}),
    Case("IsInf_negative", "IsInf", {"x": special(33)}, {"detect_positive": 0}),
    Case("Not", "Not", {"x": values(35, dtype=bool)}),
    Case("BitwiseNot", "BitwiseNot", {"x": values(35, dtype=np.int32)}),
    Case("Swish", "Swish", {"x": values(35)}, opset=24, ort=False),
    Case("Swish_alpha", "Swish", {"x": values(35)}, {"alpha": 0.7}, opset=24, ort=False),
    Case("Dropout", "Dropout", {"x": values(3, 5)}),
]

SHAPES = [((), ()), ((1,), (7,)), ((9,), ()), ((3, 1, 5), (4, 1)), ((2, 3, 17), (17,)), ((2, 3, 8), (2, 3, 8)), ((4, 1), (1, 9)),
          ((0, 3), (3,)), ((5, 1, 7, 1), (6, 1, 8)), ((130, 129), (130, 1))]  # fmt: skip
CASES += [
    Case(f"{op}_{i}", op, {"a": values(*a, seed=1), "b": values(*b, seed=2, low=0.5)})
    for op in ("Add", "Sub", "Mul", "Div")
    for i, (a, b) in enumerate(SHAPES)
]
CASES += [Case(f"{op}_special", op, {"a": special(64, seed=1), "b": special(64, seed=2)}, ort=op not in ("Max", "Min"))
          for op in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")]  # fmt: skip
CASES += [
    Case(f"{op}_{np.dtype(t)}", op, {"a": values(3, 19, dtype=t, seed=1, low=-9, high=9), "b": values(19, dtype=t, seed=2, low=1, high=7)},
         ort=t in (np.int32, np.int64))
    for op in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Equal", "Greater", "Less") for t in INTS
]  # fmt: skip
CASES += [
    Case(
        f"{op}_{np.dtype(t)}",
        op,
        {"a": values(3, 19, dtype=t, seed=1), "b": values(19, dtype=t, seed=2, low=1)},
        ort=False,
    )
    for op in ("Add", "Mul", "Div", "Max", "Pow", "Less")
    for t in (np.float64, np.float16, BFLOAT16)
]
CASES += [
    Case("Add_run_time_broadcast", "Add", {"a": values(3, 5), "b": values(1, 5)}, dims={"a": ["p", "q"], "b": ["r", "q"]}),
    Case("Add_run_time_equal", "Add", {"a": values(3, 5), "b": values(3, 5)}, dims={"a": ["p", "q"], "b": ["r", "t"]}),
    Case("Add_anonymous", "Add", {"a": values(3, 1), "b": values(1, 5)}, dims={"a": [None, None], "b": [None, None]}),
    Case("Pow_2", "Pow", {"x": special(33), "e": np.array(2.0, np.float32)}, constants=("e",)),
    Case("Pow_3", "Pow", {"x": values(33), "e": np.array(3.0, np.float32)}, constants=("e",)),
    Case("Pow_half", "Pow", {"x": values(33, low=0), "e": np.array(0.5, np.float32)}, constants=("e",), tolerance=(APPROXIMATE, SAME)),
    Case("Pow_tensor", "Pow", {"x": values(3, 11, low=0.1), "e": values(11, seed=3)}, tolerance=(APPROXIMATE, SAME)),
    Case("Pow_int_exponent", "Pow", {"x": values(3, 11), "e": values(11, dtype=np.int64, seed=3, low=0)}, tolerance=(APPROXIMATE, SAME)),
    Case("Pow_int", "Pow", {"x": values(3, 11, dtype=np.int64), "e": values(11, dtype=np.int64, seed=3, low=0)}),
    Case("Mod_int", "Mod", {"a": values(40, dtype=np.int64, low=-20, high=20), "b": values(40, dtype=np.int64, seed=1, low=1, high=7)}),
    Case("Mod_negative", "Mod", {"a": values(40, dtype=np.int32, low=-20, high=20), "b": values(40, dtype=np.int32, seed=1, low=-7, high=-1)}),
    Case("Mod_fmod", "Mod", {"a": values(40, low=-20, high=20), "b": values(40, seed=1, low=0.5, high=7)}, {"fmod": 1}),
    Case("And", "And", {"a": values(3, 9, dtype=bool), "b": values(9, dtype=bool, seed=1)}),
    Case("Or", "Or", {"a": values(3, 9, dtype=bool), "b": values(9, dtype=bool, seed=1)}),
    Case("Xor", "Xor", {"a": values(3, 9, dtype=bool), "b": values(9, dtype=bool, seed=1)}),
    Case("Equal_bool", "Equal", {"a": values(3, 9, dtype=bool), "b": values(9, dtype=bool, seed=1)}),
    Case("BitwiseAnd", "BitwiseAnd", {"a": values(33, dtype=np.int32, high=99), "b": values(33, dtype=np.int32, seed=1, high=99)}),
    Case("BitwiseOr", "BitwiseOr", {"a": values(33, dtype=np.uint8, high=99), "b": values(33, dtype=np.uint8, seed=1, high=99)}),
    Case("BitwiseXor", "BitwiseXor", {"a": values(33, dtype=np.int64, high=99), "b": values(33, dtype=np.int64, seed=1, high=99)}),
    Case("BitShift_left", "BitShift", {"a": values(33, dtype=np.uint32, high=99), "b": values(33, dtype=np.uint32, seed=1, low=0, high=5)}, {"direction": "LEFT"}),
    Case("BitShift_right", "BitShift", {"a": values(33, dtype=np.uint64, high=99), "b": values(33, dtype=np.uint64, seed=1, low=0, high=5)}, {"direction": "RIGHT"}),
    Case("Where", "Where", {"c": values(4, 1, 9, dtype=bool), "a": values(3, 9), "b": values(9, seed=1)}),
    Case("Where_int", "Where", {"c": values(40, dtype=bool), "a": values(40, dtype=np.int64), "b": np.array(3)}),
    Case("PRelu", "PRelu", {"x": special(3, 9), "slope": values(9, seed=1)}),
    Case("Max_three", "Max", {"a": values(3, 9), "b": values(9, seed=1), "c": values(1, seed=2)}),
    Case("Min_one", "Min", {"a": values(3, 9)}),
    Case("Sum_three", "Sum", {"a": values(3, 9), "b": values(9, seed=1), "c": values(3, 1, seed=2)}),
    Case("Mean_three", "Mean", {"a": values(3, 9), "b": values(9, seed=1), "c": values(3, 1, seed=2)}),
    Case("Clip", "Clip", {"x": special(40), "lo": np.array(-1, np.float32), "hi": np.array(1, np.float32)}, constants=("lo", "hi")),
    Case("Clip_tensors", "Clip", {"x": values(40), "lo": np.array(-1, np.float32), "hi": np.array(1, np.float32)}),
    Case("Clip_low", "Clip", {"x": values(40, dtype=np.int64), "lo": np.array(-1)}, constants=("lo",)),
    Case("Clip_high", "Clip", {"x": values(40), "lo": None, "hi": np.array(1, np.float32)}, constants=("hi",)),
    Case("Clip_6", "Clip", {"x": values(40)}, {"min": -0.5, "max": 2.0}, opset=7),
    Case("OneHot_like_Equal", "Equal", {"a": values(7, 1, dtype=np.int64, low=0), "b": np.arange(5)}, constants=("b",)),
]  # fmt: skip


@pytest.mark.build
@pytest.mark.parametrize("case", CASES, ids=str)
def test_elementwise(case: Case, batch) -> None:
    batch(CASES).check(case)


def test_refusals() -> None:
    refused(Case("a", "Mod", {"a": values(3), "b": values(3)}), "fmod=1")
    refused(Case("b", "Not", {"x": values(3)}), "not of float32 is not defined")
    refused(Case("c", "Add", {"a": values(3), "b": values(4)}, dynamic=False), "broadcast")
    refused(Case("d", "Relu", {"x": values(3)}, {"slope": 2.0}), "Unrecognized attribute: slope")
    refused(Case("e", "Identity", {"x": np.zeros(3, np.complex64)}), "complex64")
