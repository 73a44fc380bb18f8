"""Audits: what a job wrote against what the log says it had to write, all at once or running behind it."""
