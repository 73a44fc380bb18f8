"""The runtime of the job: Spark, its Python processes, epochs and the checkpoint."""
