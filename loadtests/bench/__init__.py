"""Benchmarks; docs/measurements.md gives each result with its command and the machine's load average."""
