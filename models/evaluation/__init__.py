"""Evaluation by the Fraud Detection Handbook's protocol and metrics, for any labelled history."""
