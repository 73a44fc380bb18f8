"""Everything that starts things: the command line, the embedded stack, the demo."""
