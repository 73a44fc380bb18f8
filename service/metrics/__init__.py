"""The sidecar's Prometheus metrics: one module for each subject, and the collector of all families."""
