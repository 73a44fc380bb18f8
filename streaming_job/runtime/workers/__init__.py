"""Spark's Python processes, and the processes that preload modules and kernels and then fork them."""

PRIVATE = 0o077
"""Umask of all processes of the job. The state contains card data, and a process that can connect to the
sockets of Spark's Python processes can run code in them."""
