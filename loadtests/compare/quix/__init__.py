"""The job on Quix Streams, in its own virtual environment; imports nothing else of the project."""
