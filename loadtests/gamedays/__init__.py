"""Scripted game days: each provokes a symptom of the runbook on a real system, mends it and audits."""
