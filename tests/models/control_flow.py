"""One model of many parts with control flow in them, each with inputs and outputs of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import onnx

from tests.models.text import text_model

Array = npt.NDArray[np.generic]
WIDTH = 48


def weights(*names: str) -> dict[str, Array]:
    rng = np.random.default_rng(len(names))
    return {name: (rng.normal(size=(WIDTH, WIDTH)) / WIDTH**0.5).astype(np.float32) for name in names}


@dataclass(frozen=True)
class Part:
    """`inputs` and `outputs` are in ONNX's text form, `ops` how many custom ops its graphs become."""

    inputs: str
    outputs: str
    body: str
    ops: int
    constants: Mapping[str, Array] = field(default_factory=dict)


ROWS = f"float[n,{WIDTH}]"

PARTS = {
    # The branches use the same names for different values.
    "branches": Part(
        f"bool branch_c, {ROWS} branch_x",
        f"{ROWS} branch_y",
        f"""branch_y = If (branch_c) <
            then_branch = yes () => ({ROWS} same) {{
                h = MatMul(branch_x, branch_a) r = Relu(h) same = MatMul(r, branch_b) }},
            else_branch = no () => ({ROWS} same) {{
                h = MatMul(branch_x, branch_b) r = Tanh(h) same = MatMul(r, branch_a) }}
        >""",
        2,
        weights("branch_a", "branch_b"),
    ),
    "nested": Part(
        f"bool nested_c, bool nested_d, {ROWS} nested_x",
        f"{ROWS} nested_y",
        f"""nested_e = Exp(nested_x)
        nested_y = If (nested_c) <
            then_branch = outer_yes () => ({ROWS} p) {{
                w = MatMul(nested_e, nested_a)
                p = If (nested_d) <
                    then_branch = inner_yes () => ({ROWS} q) {{ v = MatMul(w, nested_a) q = Add(v, nested_e) }},
                    else_branch = inner_no () => ({ROWS} q) {{ q = Identity(w) }}
                >
            }},
            else_branch = outer_no () => ({ROWS} p) {{ p = Identity(nested_x) }}
        >""",
        3,
        weights("nested_a"),
    ),
    # State, a captured activation, stacked outputs, and an end that depends on data.
    "loop": Part(
        f"int64 loop_m, float loop_most, {ROWS} loop_x",
        f"{ROWS} loop_y, float[t,u,{WIDTH}] loop_all, float[v] loop_sums",
        f"""loop_go = Constant <value = bool {{1}}> () loop_r = Relu(loop_x)
        loop_last, loop_all, loop_sums = Loop <
            body = turn (int64 i, bool go, {ROWS} state) => (bool more, {ROWS} next, float[n,{WIDTH}] each, float sum) {{
                h = MatMul(state, loop_w) t = Tanh(h) next = Add(t, loop_r)
                each = Identity(t)
                q = Mul(next, next) sum = ReduceSum <keepdims = 0> (q)
                more = Less(sum, loop_most)
            }}
        > (loop_m, loop_go, loop_x)
        loop_y = Neg(loop_last)""",
        3,
        weights("loop_w"),
    ),
    "scan": Part(
        f"float[k,n,{WIDTH}] scan_x, {ROWS} scan_h",
        f"{ROWS} scan_last, float[k,n,{WIDTH}] scan_all",
        f"""scan_last, scan_all = Scan <
            num_scan_inputs = 1,
            body = step ({ROWS} state, {ROWS} slice) => ({ROWS} next, {ROWS} each) {{
                a = MatMul(state, scan_u) b = MatMul(slice, scan_w) c = Add(a, b) next = Tanh(c) each = Identity(next)
            }}
        > (scan_h, scan_x)""",
        1,
        weights("scan_u", "scan_w"),
    ),
    # A weight and an activation that every turn passes on.
    "carrying": Part(
        f"int64 carry_m, {ROWS} carry_x",
        f"{ROWS} carry_y, {ROWS} carry_z",
        f"""carry_go = Constant <value = bool {{1}}> () carry_r = Relu(carry_x)
        carry_y, carry_same, carry_v = Loop <
            body = turn (int64 i, bool go, {ROWS} state, {ROWS} r, float[] w) => (bool more, {ROWS} next, {ROWS} p, float[] w) {{
                h = MatMul(state, w) next = Add(h, r) p = Identity(r) more = Identity(go)
            }}
        > (carry_m, carry_go, carry_x, carry_r, carry_w)
        carry_z = MatMul(carry_same, carry_v)""",
        2,
        weights("carry_w"),
    ),
    # Each turn has twice as many rows as the one before.
    "growing": Part(
        f"int64 grow_m, {ROWS} grow_x",
        f"float[g,{WIDTH}] grow_y",
        f"""grow_go = Constant <value = bool {{1}}> ()
        grow_y = Loop <
            body = turn (int64 i, bool go, {ROWS} state) => (bool more, float[o,{WIDTH}] next) {{
                h = MatMul(state, grow_w) t = Sigmoid(h) next = Concat <axis = 0> (t, state) more = Identity(go)
            }}
        > (grow_m, grow_go, grow_x)""",
        1,
        weights("grow_w"),
    ),
    # Every turn adds an axis, so nothing is known of the state in the body.
    "deeper": Part(
        f"int64 deep_m, {ROWS} deep_x",
        "float[w] deep_y",
        """deep_go = Constant <value = bool {1}> () deep_zero = Constant <value_ints = [0]> ()
        deep_last = Loop <
            body = turn (int64 i, bool go, float[] state) => (bool more, float[] next) {
                h = MatMul(state, deep_w) next = Unsqueeze(h, deep_zero) more = Identity(go)
            }
        > (deep_m, deep_go, deep_x)
        deep_flat = Constant <value_ints = [-1]> () deep_y = Reshape(deep_last, deep_flat)""",
        0,
        weights("deep_w"),
    ),
    # One branch gives back a matrix, the other a vector.
    "ranks": Part(
        f"bool rank_c, {ROWS} rank_x",
        "float[z] rank_y",
        f"""rank_i = If (rank_c) <
            then_branch = yes () => ({ROWS} p) {{ p = MatMul(rank_x, rank_w) }},
            else_branch = no () => (float[{WIDTH}] p) {{ f = MatMul(rank_x, rank_w) p = ReduceSum <keepdims = 0> (f, rank_axes) }}
        >
        rank_e = Exp(rank_i) rank_flat = Constant <value_ints = [-1]> () rank_y = Reshape(rank_e, rank_flat)""",
        2,
        {**weights("rank_w"), "rank_axes": np.array([0])},
    ),
    "left": Part(
        f"int64 left_m, {ROWS} left_x",
        f"{ROWS} left_y",
        f"""left_go = Constant <value = bool {{1}}> () left_two = Constant <value_int = 2> ()
        left_y = Loop <
            body = turn (int64 i, bool go, {ROWS} state) => (bool more, {ROWS} next) {{
                next = ReverseSequence <batch_axis = 1, time_axis = 0> (state, left_lengths)
                twice = Mul(i, left_two) near = Sub(twice, i) more = GreaterOrEqual(near, i)
            }}
        > (left_m, left_go, left_x)""",
        0,
        {"left_lengths": np.ones(WIDTH, np.int64)},
    ),
}


def control_flow_model(*names: str) -> onnx.ModelProto:
    """The named parts side by side, or all of them."""
    parts = [PARTS[name] for name in names or PARTS]
    signature = f"({', '.join(part.inputs for part in parts)}) => ({', '.join(part.outputs for part in parts)})"
    constants = {name: array for part in parts for name, array in part.constants.items()}
    return text_model(signature, "\n".join(part.body for part in parts), constants=constants)
