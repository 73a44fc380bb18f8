"""Options that `fraud features`, `fraud models train` and `fraud models evaluate` have in common."""

from pathlib import Path
from typing import Annotated

import typer

Transactions = Annotated[
    Path,
    typer.Option(
        help="Parquet file, or directory of them, with the columns of the transaction contract "
        "or of the Fraud Detection Handbook's data; or an archive"
    ),
]
LabelFile = Annotated[
    Path | None,
    typer.Option(
        help="Parquet with the chargeback contract's columns, or an archive; default: the column `label` of "
        "the transactions"
    ),
]
MerchantLabelFeatures = Annotated[
    bool,
    typer.Option(
        "--merchant-labels", help="Add merchant label features, as jobs with FRAUD_MERCHANT_FACTS=true do"
    ),
]
DELAY_HELP = (
    "Label delay in days: a transaction not reported this long after its arrival counts as genuine; a fraud "
    "whose label has no time of its own counts as reported this long after its arrival."
)
MOST_DELAY_DAYS = 120
"""The greatest that the job accepts."""
LabelDelayDays = Annotated[
    float,
    typer.Option(
        min=0, max=MOST_DELAY_DAYS, help=f"{DELAY_HELP} Give the job's delay (FRAUD_LABEL_DELAY_MS)"
    ),
]
DEFAULT_DELAY_DAYS = 7.0
"""The job's default (`FRAUD_LABEL_DELAY_MS`)."""
