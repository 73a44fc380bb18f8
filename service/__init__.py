"""The FastAPI sidecar: health, metrics, rollouts, labels, live precision and the status page."""
