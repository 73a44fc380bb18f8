"""The FastAPI sidecar: health, metrics and rollouts."""
