"""The ledger of labels, and the tool that adds, imports and shows them."""
