"""The report of a backtest as a self-contained HTML page, without scripts. Pure."""

import base64
import hashlib
from collections.abc import Mapping
from html import escape
from typing import Any

from models import html_pages
from service.backtests.tables import Table, facts, sample_table, tables

_DIGEST = base64.b64encode(hashlib.sha256(html_pages.STYLE.encode()).digest()).decode()
CONTENT_SECURITY_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_DIGEST}'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
"""Of the page when the sidecar serves it: its style is in it, and nothing else is allowed."""


def page(report: Mapping[str, Any]) -> str:
    """Render a report (`backtest.report`) as HTML; all text in it is escaped."""
    about = "".join(f"<p>{escape(sentence)}.</p>\n" for sentence in facts(report))
    sample = f'<div class="text">{_table(sample_table(report))}</div>'
    return html_pages.page("Backtest", f"{about}{''.join(map(_table, tables(report)))}{sample}")


def _table(table: Table) -> str:
    return f"<h2>{escape(table.title)}</h2>\n{html_pages.table(table.head, table.rows)}"
