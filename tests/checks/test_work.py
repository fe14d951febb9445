"""Names of kernels, short enough for a table."""

from __future__ import annotations

import pytest

from ortisan.checks.work import short_name


@pytest.mark.parametrize(
    "readable, short",
    [
        ("plain", "plain"),
        ("norm(float*, int)", "norm"),
        ("void rows<float, (int)4>(float const*)", "rows<float>"),
        ("void cutlass::Kernel<cutlass::gemm::kernel::Universal<A, B<C> > >(P::Params)", "cutlass::Kernel<Universal>"),
        ("void (anonymous namespace)::gather<4>(long*)", "(anonymous namespace)::gather<4>"),
        ("void rows<(anonymous namespace)::Mean, 2>(float*)", "rows<Mean>"),
    ],
)
def test_a_kernel_is_named_by_its_function(readable: str, short: str) -> None:
    assert short_name(readable) == short
