"""The lines that Spark and its JVM write at their start, before a card is explained."""

import os

import pytest

from streaming_job.explain import STDERR, _quiet_jvm

pytestmark = pytest.mark.unit
LINES = b"WARNING: Using incubator modules"


def test_lines_of_a_start_are_shown_only_after_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    with _quiet_jvm():
        os.write(STDERR, LINES)
    os.write(STDERR, b"error: no epoch")
    assert capfd.readouterr().err == "error: no epoch"

    def start() -> None:
        with _quiet_jvm():
            os.write(STDERR, LINES)
            raise OSError("no Java")

    with pytest.raises(OSError, match="no Java"):
        start()
    assert capfd.readouterr().err == LINES.decode()
