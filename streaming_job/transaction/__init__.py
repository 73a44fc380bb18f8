"""The transactional output of a key group: each Kafka transaction is written exactly once."""
