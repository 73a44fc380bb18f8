"""Decoders of the input topics: from bytes to records for the kernels, or to a reason for a dead letter."""
