"""Scripted game days: each provokes one symptom of the runbook on a real system, looks, mends and audits."""
