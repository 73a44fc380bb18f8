"""Audits: compare a job's outputs with those that the oracle computes, all at once or continuously."""
