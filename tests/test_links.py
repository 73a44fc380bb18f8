"""Each relative link of a page leads to a file, and to a heading of it."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("tests/**/*.md")]
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchor(heading: str) -> str:
    """Return the anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def dead_links(page: Path) -> Iterator[str]:
    """Yield the links of a page that lead nowhere."""
    for target in LINK.findall(page.read_text()):
        name, _, heading = target.partition("#")
        file = page.parent / name if name else page
        if "://" not in target and not (file.exists() and leads_to(file, heading)):
            yield target


def leads_to(file: Path, heading: str) -> bool:
    """Return whether the file has the heading, by its anchor; an empty one stands for the file."""
    return not heading or heading in map(anchor, HEADING.findall(file.read_text()))


def test_headings_have_the_anchors_of_github() -> None:
    assert anchor("Lag, by the broker's offsets") == "lag-by-the-brokers-offsets"
    assert anchor("The feed `x_y`") == "the-feed-x_y"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert not list(dead_links(page))
