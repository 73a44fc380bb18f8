"""The same job on other engines, beside ours on the same broker: docs/comparison.md."""
