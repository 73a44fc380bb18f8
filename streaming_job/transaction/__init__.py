"""The transactional output of a key group: each of its transactions is on the topics once, and whole."""
