"""Write every dashboard as JSON."""

import json
from pathlib import Path

from deploy.grafana import HOME, internals, load_test, overview, risk, rollouts

DASHBOARDS = (
    overview.DASHBOARD,
    internals.DASHBOARD,
    rollouts.DASHBOARD,
    risk.DASHBOARD,
    load_test.DASHBOARD,
)


def files() -> dict[Path, str]:
    """Render the text of each file."""
    return {
        HOME / f"{dashboard.uid}.json": json.dumps(dashboard.to_json(), indent=1, ensure_ascii=False) + "\n"
        for dashboard in DASHBOARDS
    }


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text)
