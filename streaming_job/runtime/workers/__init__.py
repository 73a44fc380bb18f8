"""Spark's Python processes: what forks them, and what they find loaded."""
