"""Backtests: the command, and the report as a table and as a page."""
