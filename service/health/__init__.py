"""What is wrong, since when, and what to do: lag, verdicts, readiness, status."""
