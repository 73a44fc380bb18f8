"""Merchant facts: counts and label reports that key groups exchange, for features of merchants."""
