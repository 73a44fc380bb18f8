"""The garbage collector's freeze in a key group's process, once its long-lived objects exist."""

import gc

FREEZE_AT = (3, 20)
"""Numbers of the calls that freeze all objects."""

_calls = 0


def freeze_after_warm_up() -> None:
    """Exclude the objects of imports, model and first epochs from garbage collection.

    A full collection would walk all of them, which takes longer than a small batch.
    """
    global _calls
    _calls += 1
    if _calls in FREEZE_AT:
        gc.collect()
        gc.freeze()
