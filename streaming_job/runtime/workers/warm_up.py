"""The exclusion of a process's long-lived objects from garbage collection, once they exist."""

import gc

FREEZE_AT = (3, 20)
"""Which calls of `freeze_after_warm_up`, counted from 1, freeze all objects."""

_calls = 0


def freeze_after_warm_up() -> None:
    """Exclude the objects of imports, model and first epochs from garbage collection.

    A full collection would walk all of them, which takes longer than deciding a small mini-batch.
    """
    global _calls
    _calls += 1
    if _calls in FREEZE_AT:
        gc.collect()
        gc.freeze()
