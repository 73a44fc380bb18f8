"""Comparison of this project with the same job on other engines, on one broker; see docs/measurements.md."""
