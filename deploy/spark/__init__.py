"""The job under `spark-submit`: its program, and an example of the properties file."""
