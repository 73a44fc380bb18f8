"""A key group: its state, and the loop that follows its partitions."""
