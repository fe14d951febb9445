"""The kernel plans of a compilation, with the blockings of its matrix products chosen."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ortisan._version import __version__
from ortisan.codegen.ait.adapter import Adapter
from ortisan.codegen.cpu.isa import why_not_run
from ortisan.codegen.cpu.plan import GraphPlan, plan_graph
from ortisan.codegen.cpu.tune.blocking import table
from ortisan.codegen.cpu.tune.choose import Tuning, by_cost_model, tune
from ortisan.pipeline.compilation import Options, Plans
from ortisan.registry.graph import Graph


def plan_graphs(
    graphs: Sequence[Graph],
    options: Options,
    say: Callable[[str], None],
    *,
    given: Tuning | None = None,
    adapter: Adapter | None = None,
    before_timing: Callable[[], None] | None = None,
) -> tuple[Plans, Tuning]:
    """Plans the kernels and tunes them as the options say, or as it was done before (`given`).

    For GPUs the plans are AITemplate's, and the adapter has made them when it was asked what it can take.
    """
    if adapter is not None:
        models = tuple(map(adapter.model, graphs))
        return models, by_cost_model((), options.tune, "AITemplate chooses how products are blocked")
    if options.target.kind != "cpu":
        return (), by_cost_model((), options.tune, "nothing is generated for this target")
    say("planning the kernels")
    plans = tuple(map(plan_graph, graphs))
    tuning = _tune(plans, options, say, before_timing) if given is None else given
    if any(tuning.table(product) != table(product) for plan in plans for product in plan.products):
        plans = tuple(plan_graph(graph, blocking_table=tuning.table) for graph in graphs)
    return plans, tuning


def _tune(
    plans: Sequence[GraphPlan],
    options: Options,
    say: Callable[[str], None],
    before_timing: Callable[[], None] | None,
) -> Tuning:
    products = list(dict.fromkeys(product for plan in plans for product in plan.products))
    isa = options.target.isa
    if options.tune == "off" or isa is None:
        return by_cost_model(products)
    if obstacle := why_not_run(isa):
        return by_cost_model(products, options.tune, obstacle)
    weight_bytes = sum(size for plan in plans for size in plan.packed_sizes())
    return tune(
        products,
        mode=options.tune,
        isa=isa,
        weight_bytes=weight_bytes,
        version=__version__,
        on_progress=say,
        before_timing=before_timing,
    )
