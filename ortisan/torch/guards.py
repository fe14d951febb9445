"""Guards that dynamo leaves out, in a graph that it is about to hand over."""

from __future__ import annotations

from torch._dynamo.guards import GuardBuilder
from torch._guards import TracingContext


def guard_hooks() -> None:
    """Makes hooks that are added to a module afterwards count.

    dynamo guards the hooks that there are, and takes for granted that modules without hooks stay so, which would run a
    graph that is out of date. Guards are built when the backend has returned, so they can be added here.
    """
    context = TracingContext.try_get()
    skipped = getattr(GuardBuilder, "EMPTY_NN_MODULE_HOOKS_DICT", None)
    if context is None or skipped is None:
        return
    guards = context.guards_context.dynamo_guards
    for guard in [each for each in guards if each.create_fn is skipped]:
        guards.add(guard.originating_source.make_guard(GuardBuilder.SEQUENCE_LENGTH))
