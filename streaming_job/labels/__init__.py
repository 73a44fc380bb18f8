"""The ledger of labels: a tool that adds, imports and shows them."""
