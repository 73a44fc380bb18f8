"""The report of a backtest as a self-contained HTML page, without scripts. Pure."""

import base64
import hashlib
from collections.abc import Mapping
from html import escape
from typing import Any

from service.backtests.tables import Table, facts, sample_table, tables

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; margin: .5rem 0 1.5rem }
th, td { padding: .15rem .8rem; text-align: right }
th { border-bottom: 1px solid #999 } td:first-child, th:first-child { text-align: left }
.sample td { text-align: left; font-size: 13px }
"""
_DIGEST = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
CONTENT_SECURITY_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_DIGEST}'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
"""Of the page when the sidecar serves it: its style is in it, and nothing else is allowed."""


def page(report: Mapping[str, Any]) -> str:
    """Render a report (`backtest.report`) as HTML; all text in it is escaped."""
    about = "".join(f"<p>{escape(sentence)}.</p>\n" for sentence in facts(report))
    body = "".join(map(_table, tables(report)))
    sample = f'<div class="sample">{_table(sample_table(report))}</div>'
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Backtest</title>'
        f"<style>{_STYLE}</style></head><body>\n<h1>Backtest</h1>\n{about}{body}{sample}</body></html>\n"
    )


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in table.head)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>\n" for row in table.rows
    )
    return f"<h2>{escape(table.title)}</h2>\n<table><tr>{head}</tr>\n{rows}</table>\n"
