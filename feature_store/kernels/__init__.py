"""The compiled kernels of features and state, on flat arrays; `feature_store.state` calls them."""
