"""Locust load test of the job: run by `fraud loadtest`, or by hand with `locust -f loadtests/locustfile.py`.

The options `--tx-...` (also in the web UI) are the fields of the plan. Addresses, security and topics come
from the same FRAUD_... variables as the job's. See docs/operations.md.
"""

from loadtests.locust_run.users import SidecarUser, TransactionUser, WholeRun
from loadtests.locust_run.wiring import connect

__all__ = ["SidecarUser", "TransactionUser", "WholeRun"]

connect()
