"""Rollouts by HTTP and by command: the desk that writes their events, the guards' watch, what can be read."""
