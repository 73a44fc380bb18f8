"""Feature definitions, kernels and per-card state: the pure core shared by stream and training."""
