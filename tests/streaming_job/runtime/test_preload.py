"""Kernels that have to be loaded before Spark's Python workers are forked."""

import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor

import pytest

pytestmark = pytest.mark.unit


def kernels() -> dict[str, int]:
    """Kernel -> number of signatures for which it is loaded in this process."""
    from numba.core.dispatcher import Dispatcher

    ours = [module for name, module in sorted(sys.modules.items()) if name.startswith(PACKAGES)]
    return {
        f"{module.__name__}.{name}": len(result.signatures)
        for module in ours
        for name, result in vars(module).items()
        if isinstance(result, Dispatcher)
    }


PACKAGES = ("feature_store", "models", "streaming_job")


def preloaded_and_then_used() -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
    """`kernels()` at first, after preloading, and after epochs of groups without and with merchant facts."""
    from harness.job_world import World
    from harness.labelled_world import MemoryGroups, labelled_world, merchant_rules
    from harness.log_world import SECOND
    from harness.memory_job import mortal
    from harness.memory_log import Fate, as_written

    from streaming_job.runtime.workers import preload

    at_first = kernels()
    labelled = labelled_world(0, 60, 3)
    preload.load_kernels()
    preloaded = kernels()
    world = World()
    for second in range(5):
        world.tx(second * SECOND, 1e6, partition=0)
    world.run(cuts=(3,), rebuild_each_batch=True)
    fate = Fate(0)
    groups = MemoryGroups(labelled.rules(2, merchants=merchant_rules()), as_written(labelled), fate)
    with mortal(fate):
        groups.finish()
    assert any(fact["kind"] == "report" for fact in groups.facts())
    return at_first, preloaded, kernels()


def test_an_epoch_finds_every_kernel_loaded() -> None:
    # in a new process: in this one other tests have loaded kernels
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as alone:
        at_first, preloaded, used = alone.submit(preloaded_and_then_used).result()
    assert sum(preloaded.values()) > sum(at_first.values())
    assert {name: count for name, count in used.items() if count != preloaded[name]} == {}
    # the epochs above do not read from Kafka, so the kernels that do are checked by name
    for kernel in ("measure", "copy", "destroy_unused"):
        assert preloaded[f"streaming_job.log.message_kernels.{kernel}"] == 1
