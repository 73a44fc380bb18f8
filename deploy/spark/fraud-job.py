# ruff: noqa: N999  the name is what operators type
"""Program for `spark-submit`: the job in the JVM that spark-submit has started.

Example: spark-submit --properties-file fraud.properties deploy/spark/fraud-job.py
"""

from deploy.cli import end
from deploy.job import run_submitted

if __name__ == "__main__":
    end(run_submitted)
