"""Write every dashboard as JSON."""

import json
from pathlib import Path

from deploy.grafana import HOME
from deploy.grafana.panels import DASHBOARDS


def files() -> dict[Path, str]:
    """Render the text of each file."""
    return {
        HOME / f"{dashboard.uid}.json": json.dumps(dashboard.to_json(), indent=1, ensure_ascii=False) + "\n"
        for dashboard in DASHBOARDS
    }


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text)
