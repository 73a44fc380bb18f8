"""Open-loop load tests with locust: latency from intended times, and an audit of every run."""
