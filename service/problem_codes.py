"""The codes of the sidecar's problems, for `/openapi.json`; docs/errors.md has the same table."""

from typing import NamedTuple


class Row(NamedTuple):
    """Codes that share one explanation."""

    codes: tuple[str, ...]
    status: int
    """Usual HTTP status."""
    what_happened: str
    what_to_do: str


TABLE = (
    Row(("missing_token",), 401, "The request has no token.", "Send Authorization: Bearer TOKEN."),
    Row(
        ("invalid_token",),
        401,
        "The token is unknown, expired or revoked, or the Authorization header is malformed.",
        "Ask for a new one (fraud tokens add).",
    ),
    Row(
        ("insufficient_role",),
        403,
        "The caller's role is insufficient; the answer names it and the required role and, of a step of a "
        "rollout, why the step needs it.",
        "Ask someone with the required role.",
    ),
    Row(
        ("local_only",),
        403,
        "There is no tokens file, and the request was not sent by this machine to this machine: it "
        "came from another address or through a proxy, or names a foreign Host.",
        "Create a tokens file.",
    ),
    Row(
        ("cross_site",),
        403,
        "A browser sent a change on behalf of a page of another origin.",
        "Find out who wrote that page.",
    ),
    Row(("not_found",), 404, "There is nothing at this path.", "See /openapi.json."),
    Row(("no_progress",), 404, "The job has not written progress yet.", "Start it."),
    Row(("unknown_rollout",), 404, "There is no such rollout.", "See GET /v1/rollouts."),
    Row(
        ("unknown_transaction",),
        404,
        "Neither an alert nor the transaction was found.",
        "Check the ids; give an earlier time as since.",
    ),
    Row(
        ("method_not_allowed",),
        405,
        "The path does not support this method, only those in Allow.",
        "See /openapi.json.",
    ),
    Row(("request_timeout",), 408, "The body did not arrive within 10 seconds.", "Send it again."),
    Row(
        ("seq",), 409, "The rollout's last event is not the one in If-Match.", "Read the rollout, then retry."
    ),
    Row(
        ("rollout_conflict",),
        409,
        "The rollout's phase does not allow the step, another rollout is open, or the champion has changed.",
        "Read the rollout, then retry.",
    ),
    Row(
        ("last_rollout",),
        409,
        "The withdrawal is refused, because it would leave no model that decides.",
        "Promote another model first.",
    ),
    Row(("race",), 409, "Other writers were faster, six times in a row.", "Read the rollout, then retry."),
    Row(
        ("open_transaction",),
        409,
        "A transaction at the end of model-rollouts is still open.",
        "Wait for its end, then retry.",
    ),
    Row(
        ("if_match_unknown",),
        412,
        "If-Match is not the number (seq) of an event.",
        "Send the ETag that GET of the rollout returns.",
    ),
    Row(("body_too_large",), 413, "The body is larger than FRAUD_MAX_BODY_BYTES.", "Send a smaller body."),
    Row(
        ("unsupported_encoding",),
        415,
        "The body is compressed (Content-Encoding).",
        "Send it uncompressed, without Content-Encoding.",
    ),
    Row(
        ("invalid_request",),
        422,
        "Parameters or body do not match the path's OpenAPI description, or the body is no JSON in UTF-8; "
        "the field errors says where.",
        "Correct them.",
    ),
    Row(
        (
            "model",
            "registry",
            "features",
            "label_delay",
            "files",
            "trust",
            "golden",
            "answers",
            "training_scores",
        ),
        422,
        "The model failed the check that the code names. For registry and files the status is 404 if the "
        "model does not exist, 503 if the registry does not answer.",
        "As the detail says; see docs/rollouts.md.",
    ),
    Row(
        (
            "policy",
            "guards",
            "guards_data",
            "challenger",
            "share_bp",
            "type",
            "contract",
            "four_eyes",
            "idempotency_key",
        ),
        422,
        "The change failed the check that the code names.",
        "As the detail says; see docs/rollouts.md.",
    ),
    Row(
        ("label",),
        422,
        "A label breaks the contract (docs/labels.md); the answer names the row. No label was written.",
        "Correct it.",
    ),
    Row(
        ("if_match_missing",),
        428,
        "The step needs If-Match.",
        "Send the ETag that GET of the rollout returns.",
    ),
    Row(
        ("rate_limited",),
        429,
        "The caller sends too many requests (FRAUD_RATE_PER_S, FRAUD_RATE_BURST).",
        "Wait for Retry-After seconds.",
    ),
    Row(("failed",), 500, "An error that the detail names.", "See the detail."),
    Row(("internal_error",), 500, "A defect; the traceback is in the sidecar's log.", "Report it."),
    Row(("broker_unavailable",), 503, "The brokers did not answer.", "Check them, repeat the request."),
    Row(
        ("rollouts_unknown",),
        503,
        "The rollout topic has not been read to its end yet.",
        "Retry in a moment.",
    ),
    Row(
        ("brokers", "audit", "too_much_to_read"),
        503,
        "brokers: the brokers did not answer a change or a search. audit: the audit log could not be read "
        "or does not exist, so the change was not made. too_much_to_read: the search would have to read "
        "more than is allowed for one answer.",
        "brokers, audit: repeat the request; if it is a change, with the same Idempotency-Key. "
        "too_much_to_read: search with a later time as since.",
    ),
    Row(
        ("busy",),
        503,
        "As many requests of this kind are running as may run at a time.",
        "Retry after Retry-After seconds.",
    ),
    Row(
        ("labels_topic",),
        503,
        "The brokers have not confirmed the labels, or there is no topic named labels.",
        "Check the brokers; run fraud job topics. Repeat the request.",
    ),
    Row(
        ("tokens_unreadable",),
        503,
        "The tokens file has changed and cannot be used, so revoked tokens are not known.",
        "fraud tokens list says why.",
    ),
)
"""Rows in ascending order of status."""
