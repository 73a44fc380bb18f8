"""Benchmarks; figures with command and load stand in docs/benchmarks.md."""
