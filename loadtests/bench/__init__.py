"""Benchmarks; docs/benchmarks.md has results with command and load."""
