"""Merchant facts: what key groups tell each other of merchants, for features of merchants."""
