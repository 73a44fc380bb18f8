"""Open-loop load tests with locust: latency from intended sending times, and an audit of every run."""
