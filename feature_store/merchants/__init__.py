"""Merchant label features: a merchant's reported frauds as of the arrival of a transaction there."""
