"""Faults on purpose: kills, and a bad network between the job and Kafka."""
