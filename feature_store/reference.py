"""Generator of docs/features.md from the catalogue: `python -m feature_store.reference FILE`."""

import sys
from pathlib import Path

from feature_store.catalogue import DAY_MS, FEATURES, HOUR_MS, MINUTE_MS, Feature
from feature_store.merchants.catalogue import MERCHANT_FEATURES

_COLUMNS = """| feature | of | unit | window | version | meaning |
|---|---|---|---|---|---|
"""

_HEAD = """# Features

Made from `feature_store/catalogue.py` by `make docs`; a test fails when the two differ. All features are
float64, NaN where unknown; the unit 1 is a plain number. *t* is the transaction's event time, *a* its arrival
(Kafka's timestamp); "before" means: accepted before the transaction, in the order of the log. A window at *t*
is (*t* - length, *t*], the transaction itself included. `arrivals_...` count by *a*, which no sender can
choose.

A model asks for features by name and version, in any order; any release that computes them runs the model.

"""

_MERCHANTS = """
## Of the merchant, from labels

Made from `feature_store/merchants/catalogue.py`. A job that keeps merchant facts (`FRAUD_MERCHANT_FACTS`,
[labels](labels.md)) computes these features; any other job refuses a model that asks for one of them. An
arrival hour is *ripe* when it has been over for the label delay plus an hour; *M* is the first arrival hour
that is not ripe at *a*. Windows begin with hour *M* - 168 (7 d) or *M* - 720 (30 d); those of counts, risks
and genuine transactions end before *M*, all others reach *a*.

"""

_TAIL = """
## Hot cards, forgotten cards

Cards with more than 512 transactions within 37 days (30 plus the default allowed lateness) are *hot*: their
windows come from rings of buckets with a bounded error, see [decision 5](decisions/005-hot-cards.md). For all
other cards every feature is exact.

A card starts afresh after 90 days without a transaction; a card with one transaction and no profile does so
after the allowed lateness plus a day, 8 days by default, see [decision
30](decisions/030-strangers-are-forgotten-early.md).

## Against the handbook's definitions

The Fraud Detection Handbook (Le Borgne et al., 2022) is the yardstick: for cards with a profile, the nine
features below, computed from the handbook's transactions, equal the columns of the handbook's own file of
features to within 1e-6 (`tests/feature_store/test_training_parity.py`).

| handbook | here | difference |
|---|---|---|
| `TX_AMOUNT` | `amount` | kept to 1/10,000 of the currency unit |
| `TX_DURING_WEEKEND` | `is_weekend` | Saturday and Sunday in UTC; the handbook's times are taken as UTC |
| `TX_DURING_NIGHT` | `is_night` | both take hour <= 6, so the night ends at 06:59:59, not at 06:00:00 |
| `CUSTOMER_ID_NB_TX_1DAY_WINDOW` (7, 30) | `count_24h` (7d, 30d) | none: pandas rolls over (t - w, t] |
| `CUSTOMER_ID_AVG_AMOUNT_1DAY_WINDOW` (7, 30) | `mean_24h` (7d, 30d) | sums are exact integers here |

Windows include the current transaction, in the handbook as here. The handbook takes transactions of one card
in the same millisecond in the order of its table, this project in the order of the log; the later one sees
the earlier one, and not the other way round. The handbook's terminal risk columns use labels that become
known a week later; they describe merchants ("terminals"), so their counterparts are among the merchant
features above.
"""

_LENGTHS = ((DAY_MS, "d"), (HOUR_MS, "h"), (MINUTE_MS, "min"))


def _length(ms: int | None) -> str:
    if ms is None:
        return ""
    return next(f"{ms // length} {unit}" for length, unit in _LENGTHS if ms % length == 0)


def _row(feature: Feature) -> str:
    cells = (
        f"`{feature.name}`",
        feature.key.value,
        feature.unit,
        _length(feature.window_ms),
        str(feature.version),
        feature.meaning.replace("|", "\\\\|"),
    )
    return f"| {' | '.join(cells)} |\n"


def page() -> str:
    """Return the whole page as Markdown."""
    of_cards, of_merchants = ("".join(map(_row, some)) for some in (FEATURES, MERCHANT_FEATURES))
    return _HEAD + _COLUMNS + of_cards + _MERCHANTS + _COLUMNS + of_merchants + _TAIL


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page())
