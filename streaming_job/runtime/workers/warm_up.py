"""What a Python worker of Spark does once it has what it will keep."""

import gc

FREEZE_AT = (3, 20)
"""Calls after which a worker's objects are declared permanent."""

_calls = 0


def freeze_after_warm_up() -> None:
    """Take what the imports, the model and the first batches made out of the garbage collector's sight.

    Spark's worker daemon runs a full collection after every task; with this process's libraries loaded that
    costs more than a small batch does, and whatever task gets the worker next waits for it.
    """
    global _calls
    _calls += 1
    if _calls in FREEZE_AT:
        gc.collect()
        gc.freeze()
