"""All game days, in the order in which they are held."""

from loadtests.gamedays.days import lag_growing, transaction_hung

DAYS = {day.name: day for day in (lag_growing.DAY, transaction_hung.DAY)}
"""By name."""
