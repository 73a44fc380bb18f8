"""A key group: the loop that follows its partitions, and its state."""
