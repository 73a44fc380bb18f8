"""Merchant facts: what key groups tell each other of merchants, so that features of merchants can be looked up."""
