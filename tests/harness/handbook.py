"""The files of the Fraud Detection Handbook's data, which are not part of the project."""

import os
from pathlib import Path

import pytest


def handbook_file(kind: str) -> Path:
    """The first file of `kind` (transactions, features) in FRAUD_HANDBOOK_DIR; skips the test without one."""
    directory = os.environ.get("FRAUD_HANDBOOK_DIR")
    name = f"handbook-{kind}-*.parquet"
    paths = sorted(Path(directory).glob(name)) if directory else []
    if not paths:
        pytest.skip(f"no {name} in FRAUD_HANDBOOK_DIR")
    return paths[0]
