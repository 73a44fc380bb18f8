"""Rollouts: events of a log that change who decides, and the state machine that they drive.

`events` are the records, `machine` says which are accepted and who decides after them, `membership` which
cards a canary gets, `policy_file` reads a policy from YAML, `publishing` writes events.
"""
