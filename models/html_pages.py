"""Reports as HTML pages, each of which needs no other file. Pure."""

from collections.abc import Iterable, Sequence
from html import escape

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; margin: .5rem 0 1.5rem } th, td { padding: .2rem .8rem; text-align: right }
th { border-bottom: 1px solid #999 } td:first-child, th:first-child, .text td { text-align: left }
svg { display: block; margin: 1rem 0; max-width: 100% } pre { white-space: pre-wrap }
.passed { color: #1d7a3a } .failed { color: #c0392b; font-weight: 600 }
"""


def page(title: str, body: str) -> str:
    """Return a page with a title and HTML below it."""
    heading = escape(title)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{heading}</title>'
        '<meta name="viewport" content="width=device-width">'
        f"<style>{STYLE}</style></head><body>\n<h1>{heading}</h1>\n{body}</body></html>\n"
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of texts, which are escaped; without a head if all its names are empty."""
    lines = [_row("th", head)] if any(head) else []
    return f"<table>{''.join([*lines, *(_row('td', row) for row in rows)])}</table>\n"


def _row(kind: str, cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{kind}>{escape(cell)}</{kind}>' for cell in cells)}</tr>\n"
