"""Messages of the job's log that tests wait for."""

AGAIN = " transactions are decided again, in silence"
"""Logged by a start from a checkpoint that is behind the committed output."""
