"""The compiled kernels of features and state, on flat arrays; `state` calls them."""
