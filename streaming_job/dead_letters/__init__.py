"""Dead letters, looked at and sent again: `fraud dead-letters`."""
