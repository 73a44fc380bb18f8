"""The job on Quix Streams: in a virtual environment of its own; imports nothing else of the project."""
