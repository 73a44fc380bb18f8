"""Training sets: point-in-time features of historical transactions, by the kernels of the stream."""
