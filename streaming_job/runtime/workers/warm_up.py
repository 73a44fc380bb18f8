"""The garbage collector's freeze in a Python worker of Spark, once its long-lived objects exist."""

import gc

FREEZE_AT = (3, 20)
"""Calls after which a worker's objects are declared permanent."""

_calls = 0


def freeze_after_warm_up() -> None:
    """Exclude the objects of imports, model and first epochs from garbage collection.

    Spark's worker daemon runs a full collection after every task. With this process's libraries it would take
    longer than a small batch, and delay the worker's next task.
    """
    global _calls
    _calls += 1
    if _calls in FREEZE_AT:
        gc.collect()
        gc.freeze()
