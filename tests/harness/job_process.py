"""The job as an operator runs it."""

from loadtests.faults.job_process import PATIENCE_S, JobProcess, gone

__all__ = ["PATIENCE_S", "JobProcess", "gone"]
