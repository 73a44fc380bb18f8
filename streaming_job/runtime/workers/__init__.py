"""Spark's Python processes: the processes that fork them, and the modules and kernels they preload."""

PRIVATE = 0o077
"""Umask of all processes of the job. State contains card data, and a client of the sockets of Spark's Python
processes could run code."""
