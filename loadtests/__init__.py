"""Simulator, replays and benchmarks: everything that produces load."""
