"""Load tests with locust: an open loop, latency from intended times, and an audit of every run."""
