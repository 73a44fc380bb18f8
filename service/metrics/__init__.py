"""What Prometheus scrapes: the families by what they are about, and the collector of them all."""
