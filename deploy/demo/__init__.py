"""`fraud demo`: bring everything up, stream transactions, watch alerts, verify them."""

from deploy.demo.commands import app

__all__ = ["app"]
