"""Replays: their progress, which `fraud replay start` writes into files, and the endpoint that shows it."""
