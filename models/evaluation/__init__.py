"""Evaluation on the future: the Fraud Detection Handbook's protocol and metrics on any labelled history."""
