"""Rollouts: events of a log that change who decides, and the state machine that they drive."""
