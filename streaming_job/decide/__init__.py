"""The decision on a transaction: features, scores, policies and alerts."""
