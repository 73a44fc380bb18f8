"""The name of the compile cache depends on all sources of the machine code."""

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
        "streaming_job.decode.strict",  # limits compiled into the decoder's kernels
        "streaming_job.log.message_kernels",
    ],
)
def test_a_change_of_a_kernel_or_of_an_import_of_it_gives_another_cache(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, modules = jit._sources_digest(), jit._modules()
    monkeypatch.setattr(jit, "_modules", lambda: {**modules, module: modules[module] + b"# changed"})
    assert jit._sources_digest() != before


def test_a_change_of_another_module_keeps_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    before, modules, module = jit._sources_digest(), jit._modules(), "feature_store.state.journal"
    monkeypatch.setattr(jit, "_modules", lambda: {**modules, module: modules[module] + b"# changed"})
    assert jit._sources_digest() == before
