"""The fraud models: training, evaluation, registration, loading, decision policy, guards and rollouts."""
