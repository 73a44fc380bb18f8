"""A file that replaces a directory would take all that is in it with it."""

from pathlib import Path

import pytest

from feature_store.output_files import OutputError, replacing

pytestmark = pytest.mark.unit


def write(output: Path) -> None:
    with replacing(output) as part:
        part.write_text("new")


def test_only_a_training_set_is_replaced_as_a_directory(tmp_path: Path) -> None:
    ours, others = tmp_path / "ours", tmp_path / "others"
    for directory in (ours, others):
        directory.mkdir()
        (directory / "part-00000.parquet").write_text("old")
    (others / "precious").write_text("old")
    write(ours)
    assert ours.read_text() == "new"
    with pytest.raises(OutputError, match="other files, which would be lost"):
        write(others)
    assert (others / "precious").read_text() == "old"
    assert not list(tmp_path.glob("*.part"))
