"""Reasons of alerts as sentences for people."""
