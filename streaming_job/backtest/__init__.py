"""Backtest: another policy or model over the archived log, decided as the live job would have decided it."""
