"""The report as one HTML page that needs no other file. Pure."""

import html
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; }
table { border-collapse: collapse; margin: .5rem 0 1.5rem; }
td, th { padding: .2rem .8rem .2rem 0; text-align: left; }
td.n { text-align: right; font-variant-numeric: tabular-nums; } tr + tr td { border-top: 1px solid #8883; }
pre { white-space: pre-wrap; } .bad { color: #b00020; font-weight: 600; } :root { color-scheme: light dark; }
"""


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
        f"<h1>Replay {_text(report['name'])}</h1>",
        f"<p>{_text(report['equal'])} alerts are equal, byte for byte. Offsets by partition: "
        f"{_text(json.dumps(report['range']))}, without {_text(report['not_kept'])} whose live "
        "alerts retention has deleted.</p>",
        *(f'<p class="bad">{_text(fault)}</p>' for fault in faults),
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
    title = f"<title>Replay {_text(report['name'])}</title>"
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width">{title}'
    return (
        f'<!doctype html><html lang="en">{head}<style>{STYLE}</style><body>{"".join(parts)}</body></html>\n'
    )


def _text(value: Any) -> str:
    return html.escape(f"{value:,}" if isinstance(value, int) else str(value))


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    cells = "".join(f"<th>{_text(name)}</th>" for name in head)
    body = "".join(
        "<tr>" + "".join(f"<td{_class(value)}>{_text(value)}</td>" for value in row) + "</tr>" for row in rows
    )
    return f"<table><tr>{cells}</tr>{body}</table>"


def _class(value: Any) -> str:
    return ' class="n"' if isinstance(value, int | float) else ""
