"""Messages of the job's log that tests wait for."""

AGAIN = " transactions are decided again, in silence"
"""Of a start behind what was said before it."""
