"""Readers of the log: they fetch the input partitions continuously, and look up their end offsets."""
