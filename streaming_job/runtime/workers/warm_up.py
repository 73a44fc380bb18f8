"""The exclusion of a process's long-lived objects from garbage collection, once they exist."""

import gc


def freeze() -> None:
    """Exclude the objects of imports, models and state from garbage collection.

    A full collection would walk all of them, which takes longer than deciding a small mini-batch.
    """
    gc.collect()
    gc.freeze()
