"""Kafka's protocol over connections of our own: one round trip, no thread in between, nothing repeated."""
