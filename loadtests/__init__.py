"""Simulator, benchmarks, load tests, game days and audits of the job."""
