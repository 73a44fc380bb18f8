"""Spark, its Python processes and the checkpoint."""
