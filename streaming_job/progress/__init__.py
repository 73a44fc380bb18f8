"""What the job tells of itself, in its own transactions."""
