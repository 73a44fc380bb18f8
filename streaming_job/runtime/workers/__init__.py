"""Spark's Python processes: what forks them, and what they find loaded."""

PRIVATE = 0o077
"""Umask of all processes of the job: state tells of cards, and whoever connects to one of the sockets over
which Spark's Python processes take their work has code run."""
