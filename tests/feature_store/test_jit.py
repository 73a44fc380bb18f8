"""The compile cache is named by everything that machine code is made of."""

import pytest

from feature_store import jit

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    "module",
    [
        "feature_store.kernels.feature_kernel",
        "feature_store.layout",  # constants of kernels
        "models.trees",
        "streaming_job.decode.plain",
        "streaming_job.decode.strict",  # limits that the kernels of the decoder have in them
        "streaming_job.log.message_kernels",
    ],
)
def test_change_of_a_kernels_source_or_of_what_it_imports_is_another_cache(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, modules = jit._sources_digest(), jit._modules()
    monkeypatch.setattr(jit, "_modules", lambda: {**modules, module: modules[module] + b"# changed"})
    assert jit._sources_digest() != before


def test_change_of_anything_else_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    before, modules = jit._sources_digest(), jit._modules()
    monkeypatch.setattr(jit, "_modules", lambda: {**modules, "streaming_job.sink": b"# changed"})
    assert jit._sources_digest() == before
