"""The streaming query: source -> decode -> keyed stage -> sink."""
