"""Health of the job: lag, verdicts, readiness, and the status with reasons, onset and runbook links."""
