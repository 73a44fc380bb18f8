"""Access to the log: followers of input partitions, end offsets, partitioner, the tools' reads and writes."""
