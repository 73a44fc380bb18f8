"""Records as another processor writes them: the part of a test that runs in a process of its own.

    python -m harness.other_processor MODELS OUT [features]

MODELS is a pickle of fitted classifiers by name, with `rows` and `medians`; OUT becomes a pickle of bytes by
name. `older()` is the environment of such a process: it hides from glibc, numpy, OpenBLAS and numba what the
processor can do beyond the first x86-64.
"""

import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import orjson

EXPLAINED = 300
"""Number of rows whose scores are explained."""
GLIBC = ("AVX512F", "AVX2", "FMA", "FMA4", "AVX2_Usable", "FMA_Usable")
"""Names of glibc's tunable, which differ between versions; it ignores those that it does not know."""


def older() -> dict[str, str]:
    """Return the variables that hide the processor's vector instructions and its fused multiply-add."""
    found = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])  # type: ignore[call-overload]
    return {
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=" + ",".join(f"-{name}" for name in GLIBC),
        "NPY_DISABLE_CPU_FEATURES": " ".join(found),
        "OPENBLAS_CORETYPE": "Prescott",
        "NUMBA_CPU_NAME": "x86-64",
        "NUMBA_CPU_FEATURES": "",
    }


def scored(models: dict[str, Any]) -> dict[str, bytes]:
    """Return score and reasons of each row and classifier as they are in alerts."""
    from models.scoring import Estimator
    from models.trees import can_compile, compile_trees
    from streaming_job.decide.alerts import reasons

    rows, medians, results = models.pop("rows"), models.pop("medians"), {}
    for name, estimator in models.items():
        compiled = can_compile(estimator)
        classifier = compile_trees(estimator) if compiled else Estimator(estimator, medians)
        some = rows[:EXPLAINED]
        contributions = reasons(some, classifier.explain(some))
        scores = classifier.score(rows if compiled else rows[: 10 * EXPLAINED])
        results[name] = orjson.dumps([scores.tolist(), contributions])
    return results


def distances() -> bytes:
    """Return the travel speeds between all countries: sines, and kernels that multiply and add."""
    from feature_store.kernels.card_features import _speed_kmh
    from feature_store.kernels.countries import CENTROIDS

    codes = np.flatnonzero(~np.isnan(CENTROIDS[:, 0])).tolist()
    return np.array([_speed_kmh(a, b, 3_600_000) for a in codes for b in codes]).tobytes()


def features() -> bytes:
    """Return the features of a simulated history, by all feature kernels."""
    import pyarrow as pa

    from feature_store.training import training_set
    from loadtests.simulator.disturbances import Disturbances
    from loadtests.simulator.transactions import Stream
    from loadtests.simulator.world import World

    stream = Stream(World.create(1, 200), 0.05, 1_750_000_000_000, disturbances=Disturbances.none())
    amounts = np.random.default_rng(1).lognormal(3, 1, 20_000)  # exp differs, too: the same input for both
    history = pa.concat_tables([batch.table for batch in stream.blocks(events=20_000)])
    at = history.schema.get_field_index("amount")
    column = pa.array(np.round(amounts, 2)).cast(history.schema.field(at).type)
    return training_set.build(history.set_column(at, "amount", column)).tobytes()


if __name__ == "__main__":
    source, target, *more = sys.argv[1:]
    results = {**scored(pickle.loads(Path(source).read_bytes())), "distances": distances()}
    if more:
        results["features"] = features()
    Path(target).write_bytes(pickle.dumps(results))
