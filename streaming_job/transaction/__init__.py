"""The transactional output of a key group: exactly once."""
