"""Training, registration, loading and decision policy of the fraud models."""
