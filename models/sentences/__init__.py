"""Reasons of alerts in words, for people."""
