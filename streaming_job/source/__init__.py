"""What the job reads: ranges of the input topics, as a data source of Spark's that yields packets."""
