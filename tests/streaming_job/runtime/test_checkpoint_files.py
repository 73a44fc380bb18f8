"""A checkpoint's file system gets a manager that writes whole files there, or is refused."""

import pytest

from streaming_job.environment import SettingsError
from streaming_job.runtime.checkpoint_files import MANAGER, manager_for

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("checkpoint", "manager"),
    [
        ("/data/checkpoint", "FileSystemBased"),
        ("checkpoint", "FileSystemBased"),
        ("file:///data/checkpoint", "FileSystemBased"),
        ("hdfs://name/checkpoint", "FileContextBased"),
        ("abfss://box@account.dfs.core.windows.net/checkpoint", "FileContextBased"),
        ("s3a://bucket/checkpoint", "AbortableStreamBased"),
    ],
)
def test_each_kind_of_file_system_has_its_manager(checkpoint: str, manager: str) -> None:
    (result,) = manager_for(checkpoint, {}).values()
    assert result.rpartition(".")[2] == f"{manager}CheckpointFileManager"


@pytest.mark.parametrize(
    ("checkpoint", "predecessor", "manager"),
    [
        ("s3a://bucket/second", "s3a://bucket/first", "AbortableStreamBased"),
        ("s3a://bucket/second", "/data/first", "FileSystemBased"),
        ("/data/second", "s3a://bucket/first", "FileSystemBased"),
        ("hdfs://name/second", "file:///data/first", "FileSystemBased"),
    ],
)
def test_one_manager_serves_a_takeover_from_another_file_system(
    checkpoint: str, predecessor: str, manager: str
) -> None:
    (result,) = manager_for(checkpoint, {}, predecessor).values()
    assert result.rpartition(".")[2] == f"{manager}CheckpointFileManager"
    assert manager_for(checkpoint, {MANAGER: "bank.Manager"}, predecessor) == {MANAGER: "bank.Manager"}


@pytest.mark.parametrize("scheme", ["gs", "s3", "s3n", "oss"])
def test_another_is_refused_unless_the_operator_knows(scheme: str) -> None:
    with pytest.raises(SettingsError, match=f"FRAUD_CHECKPOINT: .* {scheme}://.*{MANAGER} in FRAUD_SPARK"):
        manager_for(f"{scheme}://bucket/checkpoint", {})
    assert manager_for(f"{scheme}://bucket/checkpoint", {MANAGER: "bank.Manager"}) == {
        MANAGER: "bank.Manager"
    }
