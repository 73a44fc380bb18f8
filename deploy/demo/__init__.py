"""`fraud demo`: bring everything up, stream transactions, watch alerts, verify them."""
