"""Live precision: outcomes of the job's alerts by their labels."""
