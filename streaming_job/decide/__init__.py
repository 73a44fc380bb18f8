"""Features, scores and policy: which transactions become alerts."""
