"""Generator of the tables in the pages of docs/: `python -m deploy.pages DIRECTORY`."""

import sys
from pathlib import Path

from deploy import (
    capacity_page,
    errors_page,
    features_page,
    metrics_page,
    policy_page,
    settings_page,
    topics_page,
)

PAGES = {
    "capacity": capacity_page.page,
    "errors": errors_page.page,
    "features": features_page.page,
    "metrics": metrics_page.page,
    "rollouts": policy_page.page,
    "settings": settings_page.page,
    "topics": topics_page.page,
}
"""Name of a page -> function that returns its text with tables made anew."""

if __name__ == "__main__":
    for name, page in PAGES.items():
        file = Path(sys.argv[1], f"{name}.md")
        file.write_text(page(file.read_text()))
