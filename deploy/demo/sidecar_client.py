"""The sidecar as a model owner's program calls it: JSON over HTTP, every change with its own key."""

import json
import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping
from typing import Any

from deploy.demo.options import DemoError

TIMEOUT_S = 60.0


class SidecarClient:
    """Calls `/v1/rollouts` of one sidecar.

    Args:
        url: of the sidecar, with a slash at its end.
    """

    def __init__(self, url: str) -> None:
        self._url = url

    def get(self, path: str) -> dict[str, Any]:
        """The answer to GET.

        Raises:
            DemoError: the sidecar does not answer, or refuses.
        """
        return self._ask("GET", path, None, {})

    def propose(self, proposal: Mapping[str, Any]) -> str:
        """Open a rollout; returns its rollout_id.

        Raises:
            DemoError: a check was not passed.
        """
        return str(self._post("v1/rollouts", proposal, {})["rollout_id"])

    def step(self, rollout_id: str, kind: str, reason: str, seq: int) -> int:
        """Write the next event of a rollout that stands at `seq`; returns the new seq.

        Raises:
            DemoError: a check was not passed.
        """
        body = {"type": kind, "reason": reason}
        answer = self._post(f"v1/rollouts/{rollout_id}/events", body, {"If-Match": f'"{seq}"'})
        return int(answer["seq"])

    def applied(self, rollout_id: str, seq: int) -> dict[str, Any] | None:
        """A rollout, once every key group has applied its events up to `seq`; None before.

        What a change has written is read back a moment later: until then the sidecar shows the rollout as it
        was, or does not know it.

        Raises:
            DemoError: the sidecar does not answer, or refuses.
        """
        listed = self.get("v1/rollouts")["rollouts"]
        if not any(one["rollout_id"] == rollout_id and one["seq"] >= seq for one in listed):
            return None
        found = self.get(f"v1/rollouts/{rollout_id}")
        return found if found["state"] == "applied" else None

    def _post(self, path: str, body: Mapping[str, Any], headers: Mapping[str, str]) -> dict[str, Any]:
        key = {"Idempotency-Key": uuid.uuid4().hex, "Content-Type": "application/json"}
        return self._ask("POST", path, json.dumps(body).encode(), {**key, **headers})

    def _ask(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> dict[str, Any]:
        request = urllib.request.Request(self._url + path, body, dict(headers), method=method)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                found = json.loads(answer.read())
        except urllib.error.HTTPError as error:
            told = error.read().decode(errors="replace")
            raise DemoError(f"the sidecar refused {method} {path}: {told}") from error
        except (OSError, ValueError) as error:
            raise DemoError(f"the sidecar did not answer {method} {path}: {error}; see its log") from error
        assert isinstance(found, dict)
        return found
