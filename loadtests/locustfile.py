"""Load test of the job, for locust: `fraud loadtest` runs it; by hand `locust -f loadtests/locustfile.py`.

The options `--tx-...` are the plan's fields (also in the web UI); addresses, security and topics come from
the same FRAUD_... variables as the job's. See docs/load-tests.md.
"""

from loadtests.locust_run.users import SidecarUser, TransactionUser, WholeRun
from loadtests.locust_run.wiring import connect

__all__ = ["SidecarUser", "TransactionUser", "WholeRun"]

connect()
