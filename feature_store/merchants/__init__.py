"""Merchant label features: what was known of a merchant's frauds when a transaction arrived there."""
