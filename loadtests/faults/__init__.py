"""Fault injection: kills, and a bad network between the job and Kafka."""
