"""What the job says in its log."""

AGAIN = " transactions are decided again, in silence"
"""Of a start behind what was said before it."""
