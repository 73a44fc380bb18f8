"""This release reads the state of each format in `golden`, and continues from it (how: see CONTRIBUTING)."""

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from histories import Pieces, one_batch, rebuilt

from feature_store.catalogue import COLUMN
from feature_store.layout import FORMAT_VERSION

pytestmark = pytest.mark.unit

GOLDEN = Path(__file__).parent / "golden"
sys.path.insert(0, str(GOLDEN))
import golden_state  # noqa: E402

FORMATS = sorted(GOLDEN.glob("format-*"))


def test_there_is_a_golden_state_of_todays_format():
    assert f"format-{FORMAT_VERSION}" in {path.name for path in FORMATS}


@pytest.mark.parametrize("directory", FORMATS, ids=lambda path: path.name)
def test_a_golden_state_is_read_and_continued(directory):
    files = {path.name: path.read_bytes() for path in directory.iterdir() if path.suffix != ".json"}
    assert {name[0] for name in files} == {"m", "s", "d"}
    expected = json.loads((directory / "expected.json").read_text())
    state, _ = rebuilt(Pieces(files))
    history = golden_state.history()
    judged, _ = one_batch(state, history.change_records()[:0], history.records()[-golden_state.LAST :])
    assert state.card_count == expected["cards"]
    assert state.event_count == expected["events"]
    assert judged.duplicate.tolist() == expected["duplicate"] == [False, True, False, False]
    assert judged.late.tolist() == expected["late"]
    assert [list(counts) for counts in judged.suspicious] == expected["suspicious"]
    for row, features in zip(judged.features, expected["features"], strict=True):
        for name, value in features.items():
            if name in COLUMN:  # features that a newer catalogue dropped are not compared
                value = math.nan if value is None else value
                np.testing.assert_allclose(row[COLUMN[name]], value, rtol=1e-12, err_msg=name)
