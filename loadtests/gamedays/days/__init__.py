"""The game days, one module each."""
