"""Client of the sidecar's API: JSON over HTTP, every change with its own idempotency key."""

import json
import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping
from typing import Any

from deploy.demo.options import DemoError

TIMEOUT_S = 60.0


class SidecarClient:
    """Client of the `/v1/` paths of one sidecar; raises DemoError if it refuses or does not answer.

    Args:
        url: URL of the sidecar, with a slash at its end.
    """

    def __init__(self, url: str) -> None:
        self._url = url

    def get(self, path: str) -> dict[str, Any]:
        """Send GET and return the JSON answer."""
        return self._request("GET", path, None, {})

    def propose(self, proposal: Mapping[str, Any]) -> str:
        """Open a rollout; return its rollout_id."""
        return str(self._post("v1/rollouts", proposal, {})["rollout_id"])

    def step(self, rollout_id: str, kind: str, reason: str, seq: int) -> int:
        """Write the next event of a rollout whose last event has the number `seq`; return the new number."""
        body = {"type": kind, "reason": reason}
        answer = self._post(f"v1/rollouts/{rollout_id}/events", body, {"If-Match": f'"{seq}"'})
        return int(answer["seq"])

    def applied(self, rollout_id: str, seq: int) -> dict[str, Any] | None:
        """Return a rollout once every key group has applied its events up to `seq`; None before.

        The sidecar reads a written change back a moment later. Until then it shows the rollout without the
        change, or does not list the rollout.
        """
        listed = self.get("v1/rollouts")["rollouts"]
        if not any(rollout["rollout_id"] == rollout_id and rollout["seq"] >= seq for rollout in listed):
            return None
        details = self.get(f"v1/rollouts/{rollout_id}")
        return details if details["state"] == "applied" else None

    def _post(self, path: str, body: Mapping[str, Any], headers: Mapping[str, str]) -> dict[str, Any]:
        key = {"Idempotency-Key": uuid.uuid4().hex, "Content-Type": "application/json"}
        return self._request("POST", path, json.dumps(body).encode(), {**key, **headers})

    def _request(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> dict[str, Any]:
        request = urllib.request.Request(self._url + path, body, dict(headers), method=method)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
                document = json.loads(response.read())
        except urllib.error.HTTPError as error:
            body_text = error.read().decode(errors="replace")
            raise DemoError(f"the sidecar refused {method} {path}: {body_text}") from error
        except (OSError, ValueError) as error:
            raise DemoError(f"the sidecar did not answer {method} {path}: {error}; see its log") from error
        assert isinstance(document, dict)
        return document
