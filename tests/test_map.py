"""The map of the harness, tests/README.md, names each of its modules."""

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

TESTS = Path(__file__).parent


def test_the_map_names_each_module_of_the_harness() -> None:
    named = set(re.findall(r"`(\w+)`", (TESTS / "README.md").read_text()))
    modules = {path.stem for path in (TESTS / "harness").iterdir() if not path.stem.startswith("_")}
    assert modules <= named
