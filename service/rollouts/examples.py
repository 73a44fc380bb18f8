"""Example answers for the API's OpenAPI document."""

from typing import Any

from service import openapi
from service.security.problems import Problem

MODEL = {"name": "card-fraud", "version": "7", "digest": "ab" * 32, "features": 61}
POLICY = {
    "threshold": 0.4, "max_count_5m": 10, "max_count_1m": None, "max_count_1h": None,
    "missing_profile": "score", "blocked": "decline", "closed": "decline",
    "escalate_after": None, "cooldown_s": 600,
}  # fmt: skip
RECEIPT = {
    "rollout_id": "card-fraud-7-1763870000000", "seq": 3, "phase": "canary", "types": ["canary_set"],
    "offsets": [12], "repeated": False,
}  # fmt: skip
SUMMARY = {
    "rollout_id": "card-fraud-7-1763870000000", "phase": "canary", "seq": 3, "state": "applied",
    "opened_by": "ada", "opened_at": 1_763_870_000_000, "changed_at": 1_763_873_600_000, "canary": "march",
    "share_bp": 1000,
    "challengers": [
        {"name": "march", "role": "canary", "share_bp": 1000, "model": MODEL, "policy": POLICY,
         "policy_digest": "cd" * 32}
    ],
}  # fmt: skip
ROLLOUTS = {
    "champion": {"rollout_id": "card-fraud-6", "seq": 4, "model": {**MODEL, "version": "6"}, "policy": POLICY,
                 "policy_digest": "cd" * 32},
    "demands": {"four_eyes": False, "operator_max_share_bp": 1000},
    "open": "card-fraud-7-1763870000000",
    "rollouts": [SUMMARY],
}  # fmt: skip
ROLLOUT = {
    **SUMMARY, "line": "card-fraud", "guards": {"alpha": 0.01},
    "demands": {"four_eyes": True, "operator_max_share_bp": None}, "before_pause": None,
    "allowed": ["canary_set", "paused", "rolled_back", "promoted"], "is_deciding": False,
    "events": [
        {"seq": 3, "type": "canary_set", "actor": "bob", "approved_by": "bob", "reason": "shadow looks good",
         "created_at": 1_763_873_600_000, "idempotency_key": "9f1c", "offset": 12,
         "timestamp": 1_763_873_600_004, "challenger": "march", "share_bp": 1000, "state": "applied",
         "refused": None, "groups": {"applied": 2, "of": 2}, "held_from": {"0": 81_212, "1": 80_977}}
    ],
}  # fmt: skip
VERDICT = {
    "rollout_id": "card-fraud-7-1763870000000", "seq": 3, "verdict": "insufficient", "overdue": False,
    "challengers": {
        "march": {
            "verdict": "insufficient",
            "findings": [
                {"guard": "alert_rate", "verdict": "insufficient", "has_data": True,
                 "detail": "alerts in 14 card-hours, the champion in 12: ratio 1.17, wanted at most 1.5"}
            ],
        }
    },
    "commits": {"0": 4711, "1": 4698}, "log_time": 1_763_873_700_000,
    "shadow_started_at": 1_763_871_000_000, "waiting_for": None, "since": 1_763_871_010_000,
}  # fmt: skip
MODELS = {
    "name": "card-fraud",
    "models": [
        {**MODEL, "metrics": {"auc_roc": 0.97}, "now": [{"role": "canary", "rollout_id": "card-fraud-7"}]}
    ],
}
DECISION: dict[str, Any] = {
    "card_id": "c_***42", "transaction_id": "t-1", "outcome": "no_alert", "decision": None, "refused": None,
    "source": {"topic": "transactions", "partition": 0, "offset": 81_300}, "arrival_time": 1_763_873_700_000,
    "decided_by": {"rollout_id": "card-fraud-7", "rollout_seq": 3, "role": "canary", "challenger": "march",
                   "model": {"name": "card-fraud", "version": "7", "digest": "ab" * 32},
                   "policy": "cd" * 32, "threshold": 0.4},
    "membership": {"rollout_id": "card-fraud-7", "challenger": "march", "bucket": 312, "share_bp": 1000,
                   "is_member": True},
    "shadow_alerts": [], "features": None,
    "why_no_features": "features are written with alerts only; `fraud explain-card` shows the card",
}  # fmt: skip


PROBLEMS: dict[int | str, dict[str, Any]] = {}
for refusal in (
    Problem(404, "unknown_rollout", "there is no rollout x; see `fraud rollouts show`"),
    Problem(409, "seq", "card-fraud-7 stands at event 4 (canary), not 3; read it again"),
    Problem(412, "if_match_unknown", "If-Match is no seq of a rollout"),
    Problem(422, "golden", "model card-fraud 7 does not reproduce its golden scores"),
    Problem(428, "if_match_missing", "send If-Match with the rollout's seq"),
    Problem(503, "brokers", "model-rollouts cannot be read; check the settings"),
):
    PROBLEMS |= openapi.problem(refusal, "/v1/rollouts/card-fraud-7/events")
