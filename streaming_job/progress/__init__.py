"""The progress records of the job, written in its output transactions."""
