"""Following the log: what has come on the input partitions, and how far they reach."""
