"""The job on Quix Streams, in its own virtual environment; only `venv` imports other parts of the project."""
