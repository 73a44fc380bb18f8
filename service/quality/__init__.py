"""Live precision: what labels say of the job's alerts."""
