"""Routes of the status page: they serve only files of the package, and alerts as the caller may see them."""

import re
import time
from collections import deque
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import orjson
import pytest
from confluent_kafka import Consumer, TopicPartition
from fastapi import FastAPI
from fastapi.testclient import TestClient
from harness.alert_records import alert
from httpx import Response

from service.pages import alerts
from service.pages.routes import FILES, page_routes
from service.quality.alert_feed import SHOWN, AlertFeed
from service.security import installation, tokens
from service.security.headers import CONTENT_SECURITY_POLICY
from service.security.roles import Role, require_declared_roles
from service.settings import ServiceSettings

pytestmark = pytest.mark.unit

AT = 1_800_000_000_000


class KnownFeed(AlertFeed):
    """A feed with given alerts; its thread is never started."""

    def put(self, partition: int, at_ms: int, value: bytes) -> None:
        shown = dict(self._shown)
        shown.setdefault(partition, deque(maxlen=SHOWN)).append((at_ms, value))
        self._shown, self._fault, self._behind = shown, None, set()


class Sidecar:
    """The page's routes behind the sidecar's security."""

    def __init__(self, directory: Path) -> None:
        file = directory / "tokens.json"
        now = int(time.time() * 1000)
        self.tokens = {role.word: tokens.add(file, role.word, role, "root", now) for role in Role}
        settings = ServiceSettings(bootstrap_servers="none", tokens_file=file)
        self.feed = KnownFeed(settings)
        app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
        installation.install(app, settings)
        app.include_router(page_routes(self.feed, "card-fraud"))
        require_declared_roles(app)
        self.client = TestClient(app)

    def get(self, path: str, role: str | None = None) -> Response:
        headers = {"Authorization": f"Bearer {self.tokens[role]}"} if role else {}
        return self.client.get(path, headers=headers)


@pytest.fixture
def sidecar(tmp_path: Path) -> Iterator[Sidecar]:
    result = Sidecar(tmp_path)
    yield result
    result.client.close()


class Links(HTMLParser):
    """The files that a page loads, its inline scripts and styles, and the ids that it has and refers to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.inline: list[str] = []
        self.ids: list[str] = []
        self.refers: list[str] = []
        self._open = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self._open = tag
        for name, value in attributes:
            if name == "src" or (name == "href" and tag == "link"):
                self.loads.append(value or "")
            if name == "style" or name.startswith("on"):
                self.inline.append(f"{tag} {name}")
            if name == "id":
                self.ids.append(value or "")
            if name in ("for", "aria-labelledby", "aria-describedby"):
                self.refers.append(value or "")

    def handle_data(self, data: str) -> None:
        if self._open in ("script", "style") and data.strip():
            self.inline.append(data)

    def handle_endtag(self, tag: str) -> None:
        self._open = ""


def test_the_page_loads_files_of_the_package_and_nothing_else(sidecar: Sidecar) -> None:
    answer = sidecar.client.get("/")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    page = Links(answer.text)
    assert page.inline == []
    assert page.loads == ["data:,", "/page/page.css", "/page/page.js"]
    for path in page.loads[1:]:
        assert sidecar.client.get(path).status_code == 200
    assert len(page.ids) == len(set(page.ids))
    assert set(page.refers) <= set(page.ids)


def test_scripts_import_only_each_other_from_the_package() -> None:
    text = {name: content.decode() for name, (content, _) in FILES.items()}
    scripts = {name for name in text if name.endswith(".js")}
    reached, waiting = {"page.js"}, ["page.js"]
    while waiting:
        for name in re.findall(r'from "\./([a-z_]+\.js)"', text[waiting.pop()]):
            waiting += [name] if name not in reached else []
            reached.add(name)
    assert reached == scripts
    for name in scripts:
        assert text[name].count("import ") == len(re.findall(r'^import .* from "\./', text[name], re.M)), name


def test_the_page_loads_no_foreign_file_and_makes_no_markup_of_text() -> None:
    """No foreign address, no markup or code made from text, no scripted style, no storage but the tab's."""
    for name, (content, _) in FILES.items():
        text = content.decode().replace("http://www.w3.org/2000/svg", "")
        text = text.replace("/^https?:\\/\\//", "")
        assert not re.search(r"https?://|//[a-z]+\.|@import|url\(", text), name
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|\beval\(|new Function|srcdoc"
            r"|\.style\b|localStorage|document\.cookie",
            text,
        ), name


def test_every_element_that_a_script_uses_is_on_the_page() -> None:
    ids = set(Links(FILES["index.html"][0].decode()).ids)
    for name, (content, _) in FILES.items():
        assert set(re.findall(r'byId\("([^"]+)"\)', content.decode())) <= ids, name


def test_files_are_those_of_the_package_and_declared_as_its_data() -> None:
    result = {
        file.name for file in files("service.pages").iterdir() if file.name.endswith((".html", ".css", ".js"))
    }
    assert set(FILES) == result
    project = (Path(__file__).parents[3] / "pyproject.toml").read_text()
    (data,) = re.findall(r"\[tool.setuptools.package-data\]\n(.*)", project)
    assert {suffix for suffix in ('"*.html"', '"*.css"', '"*.js"') if suffix in data} == {
        '"*.html"', '"*.css"', '"*.js"',
    }  # fmt: skip


@pytest.mark.parametrize(
    "name", ["x", "routes.py", "..%2f..%2fapp.py", "%2e%2e", "__init__.py", "page.js%00"]
)
def test_no_other_file_is_served(sidecar: Sidecar, name: str) -> None:
    assert sidecar.client.get(f"/page/{name}").status_code == 404


@pytest.mark.parametrize(
    "path", ["/", "/page/page.js", "/page/page.css", "/page/x", "/v1/alerts", "/v1/caller"]
)
def test_every_answer_has_the_policy_against_inline_scripts(sidecar: Sidecar, path: str) -> None:
    answer = sidecar.client.get(path)
    assert answer.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert "unsafe" not in CONTENT_SECURITY_POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"


def test_the_page_shows_the_callers_name_and_role(sidecar: Sidecar) -> None:
    nobody = {"name": None, "role": None, "job_id": None}
    assert sidecar.client.get("/v1/caller").json() == nobody
    wrong = sidecar.client.get("/v1/caller", headers={"Authorization": "Bearer fraud_x"})
    assert (wrong.status_code, wrong.json()) == (200, nobody)
    for role in Role:
        caller = sidecar.get("/v1/caller", role.word).json()
        assert caller == {"name": role.word, "role": role.word, "job_id": "card-fraud"}


def test_alerts_are_newest_first_over_all_partitions_with_sentences(sidecar: Sidecar) -> None:
    for number in range(6):
        value = orjson.dumps(alert(number, AT + number))
        sidecar.feed.put(number % 2, AT + number, value)
    content = sidecar.get("/v1/alerts?limit=4", "operator").json()
    assert [shown["transaction_id"] for shown in content["alerts"]] == ["tx-5", "tx-4", "tx-3", "tx-2"]
    assert (content["waiting_for"], content["unreadable"]) == (None, 0)
    assert content["alerts"][0]["sentences"] == ["1 payment in 5 minutes; usually 2 a day"]
    assert "features" not in content["alerts"][0]


def test_card_ids_are_masked_only_for_viewers(sidecar: Sidecar) -> None:
    sidecar.feed.put(0, AT, orjson.dumps(alert(7, AT)))
    cards = {}
    for role in Role:
        answer = sidecar.get("/v1/alerts", role.word)
        cards[role.word] = answer.json()["alerts"][0]["card_id"]
        assert ("card-000007" in answer.text) is (role is not Role.VIEWER)
    assert cards == {"viewer": "ca***07", "operator": "card-000007", "admin": "card-000007"}


def test_records_that_are_no_alerts_are_counted_and_not_shown(sidecar: Sidecar) -> None:
    for at, value in enumerate((b"no json", b"", b"[]", b"{}", orjson.dumps(alert(1, AT)))):
        sidecar.feed.put(0, AT + at, value)
    content = sidecar.get("/v1/alerts", "viewer").json()
    assert (len(content["alerts"]), content["unreadable"]) == (1, 4)


@pytest.mark.parametrize("limit", ["0", str(SHOWN + 1), "-1", "many"])
def test_an_invalid_limit_is_refused(sidecar: Sidecar, limit: str) -> None:
    assert sidecar.get(f"/v1/alerts?limit={limit}", "viewer").status_code == 422


def test_a_feed_that_has_not_read_yet_says_so(sidecar: Sidecar) -> None:
    content = sidecar.get("/v1/alerts", "viewer").json()
    assert content == {"alerts": [], "unreadable": 0, "waiting_for": "alerts have not been read yet"}


def test_alerts_that_cannot_be_read_any_more_are_not_called_complete(sidecar: Sidecar) -> None:
    sidecar.feed.put(0, AT, orjson.dumps(alert(1, AT)))
    sidecar.feed.trouble = "new partitions of fraud-alerts cannot be looked up, and are not read: no broker"
    content = sidecar.get("/v1/alerts", "viewer").json()
    assert (len(content["alerts"]), content["waiting_for"]) == (1, sidecar.feed.trouble)


def test_only_the_newest_of_each_partition_are_shown(
    sidecar: Sidecar, monkeypatch: pytest.MonkeyPatch
) -> None:
    partitions = [TopicPartition("alerts", number) for number in range(2)]
    monkeypatch.setattr(sidecar.feed, "_newest_records", lambda *_: partitions)
    sidecar.feed._begin(Consumer({"group.id": "never asked"}))
    for number in range(3 * SHOWN):
        sidecar.feed.put(number % 2, AT + number, b"%d" % number)
    assert sidecar.feed.newest(1_000) == [
        b"%d" % number for number in range(3 * SHOWN - 1, 2 * SHOWN - 1, -1)
    ]
    assert [len(kept) for kept in sidecar.feed._shown.values()] == [SHOWN, SHOWN]


def test_an_alert_is_decoded_once_for_any_number_of_requests() -> None:
    value = orjson.dumps(alert(12_345, AT))
    before = alerts._view.cache_info().hits
    first, again = alerts.views([value]), alerts.views([value])
    assert first == again
    assert alerts._view.cache_info().hits == before + 1
