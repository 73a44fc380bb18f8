"""Rollouts over HTTP and on the command line: the desk that writes events, the guard watch, and the views."""
