"""The report as one HTML page that needs no other file. Pure."""

import html
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from models import html_pages


def page(report: Mapping[str, Any], faults: Sequence[str]) -> str:
    """Return the page; whatever comes from records is escaped."""
    live, replay = report["live"], report["replay"]
    sides = [
        (name, live[name], replay[name])
        for name in ("alerts", "suppressed", "fraud", "genuine", "unknown", "precision", "recall",
                     "amount_of_fraud", "amount_of_genuine", "release")
    ]  # fmt: skip
    kinds = [
        (kind, cause, count) for kind, counts in report["causes"].items() for cause, count in counts.items()
    ]
    parts = [
        f"<p>{_text(report['equal'])} alerts are equal, byte for byte. Offsets by partition: "
        f"{_text(json.dumps(report['range']))}, without {_text(report['not_kept'])} whose live "
        "alerts retention has deleted.</p>",
        *(f'<p class="failed">{_text(fault)}</p>' for fault in faults),
        _table(("", "live", "replay"), sides),
        "<h2>Differences, by their first causes</h2>",
        _table(("difference", "first cause", "alerts"), kinds) if kinds else "<p>None.</p>",
        *(
            f"<h2>Alerts by {_text(name)}</h2>"
            + _table((name, "live", "replay"), ((key, *counts) for key, counts in totals.items()))
            for name, totals in report["by"].items()
        ),
        "<h2>Samples</h2>",
        *(
            f"<details><summary>{_text(each['kind'])}, {_text(each['cause'])}: transaction "
            f"{_text(each['transaction_id'])}, {_text(each['amount'])} {_text(each['currency'])}</summary>"
            f"<pre>{_text(json.dumps(each, indent=2))}</pre></details>"
            for each in report["samples"]
        ),
    ]
    return html_pages.page(f"Replay {report['name']}", "".join(parts))


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    return html_pages.table(head, ([_shown(value) for value in row] for row in rows))


def _text(value: Any) -> str:
    return html.escape(_shown(value))


def _shown(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
