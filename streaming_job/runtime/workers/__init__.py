"""Spark's Python processes: the processes that fork them, and the modules and kernels they preload."""

PRIVATE = 0o077
"""Umask of all processes of the job. The state contains card data, and a process that can connect to the
sockets of Spark's Python processes can run code in them."""
