"""Operation of the project: command line, embedded stack, demo, Prometheus rules and Grafana dashboards."""
