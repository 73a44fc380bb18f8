"""The state of a key group: cards, events and profiles in flat arrays, and their persistence."""
