"""One module for each game day."""
