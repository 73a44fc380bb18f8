"""The status page in a real browser with a real broker: contents, screen reader, keyboard, rollout steps."""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import httpx
import page_scripts
import pytest
from harness.browser import ENTER, ESCAPE, TAB, Browser
from harness.tools import needs
from page_world import World, burst

from deploy.local.files import replace_json
from deploy.local.stack import Endpoints
from models.rollouts.events import Type
from models.rollouts.state import Phase
from service.replays.progress import FILE, Progress, State
from service.rollouts import reading
from service.security.audit_log import AuditLog
from streaming_job.contracts.topics import Topics

pytestmark = [
    pytest.mark.integration,
    needs("chromium", "chromedriver"),
]
KEPT = os.environ.get("PAGE_PICTURES")
"""Directory for the documentation's screenshots; if it is set, run this file alone on a fresh stack."""
IN_DOCS = {(1280, False), (360, True)}
"""(width, whether the colours are dark) of each screenshot in the documentation."""
BUTTONS = "return Array.from(document.querySelectorAll('#trials button'), (one) => one.textContent)"
FOCUSED = "return document.activeElement.id || document.activeElement.textContent"


class Page:
    """The status page in a browser."""

    def __init__(self, browser: Browser, world: World, wait_for: Callable[..., object]) -> None:
        self.browser, self.world, self._wait_for = browser, world, wait_for
        self.text, self.run = browser.text, browser.run

    def until(self, condition: Callable[[], object], what: str) -> None:
        self._wait_for(condition, what=what)

    def is_shown(self, name: str) -> bool:
        return bool(self.run("return !document.getElementById(arguments[0]).hidden", name))

    def is_open(self) -> bool:
        """Whether the dialog is open."""
        return bool(self.run("return document.getElementById('step').open"))

    def sign_in(self, role: str) -> None:
        """Enter a token; wait for the caller, the verdict, the rollout and an alert on the page."""
        self.until(lambda: self.is_shown("sign-in"), "the sign-in")
        self.browser.type("#token", self.world.tokens[role] + ENTER)
        self.until(lambda: role in self.text("#who"), "who is signed in")
        self.until(lambda: self.text("#verdict").endswith("OK"), "the verdict on a job that works")
        self.until(lambda: self.text("#trials h3").startswith("march"), "the rollout")
        self.until(lambda: self.text("#alerts li"), "an alert")


@pytest.fixture(scope="module")
def world(
    stack: Endpoints,
    topic_names: Callable[[], Topics],
    tmp_path_factory: pytest.TempPathFactory,
    wait_for: Callable[..., object],
) -> Iterator[World]:
    topics = topic_names()
    topics = topics.model_copy(update={"profiles": f"{topics.transactions}-profiles"})
    job_id = f"job-{topics.transactions}"
    if KEPT:  # screenshots show the default topics; only this file may use the stack
        topics, job_id = Topics(profiles="profiles"), "card-fraud"
    directory = tmp_path_factory.mktemp("sidecar")
    result = World(stack.bootstrap_servers, topics, job_id, directory, work_dir=directory / "work")
    result.start()
    wait_for(lambda: result.is_serving, what="the sidecar")
    yield result
    result.stop()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    result = Browser(tmp_path_factory.mktemp("browser"))
    yield result
    result.close()


@pytest.fixture
def page(browser: Browser, world: World, wait_for: Callable[..., object]) -> Iterator[Page]:
    """The page in a wide window without a token; a logged warning or error fails the test."""
    browser.look_like(1280, 1000)
    browser.open(world.url)
    browser.run("sessionStorage.clear()")
    browser.open(world.url)
    browser.console()
    yield Page(browser, world, wait_for)
    assert browser.console() == []


def test_a_viewer_sees_everything_with_masked_cards_and_no_buttons(page: Page) -> None:
    page.sign_in("viewer")
    note = "Records on the topic that are no alerts: 1"  # before, that alerts have not been read to their end
    page.until(lambda: page.text("#alerts-note") == note, "all alerts")
    alerts = page.text("#alerts")
    for output in (
        "7 payments in 5 minutes; usually 0.4 an hour",
        "523.10 EUR; usually 47.99 EUR",
        "2,312 km/h from the country of the payment before",
        "the card is blocked",
        "ca***05",
    ):
        assert output in alerts
    assert "card-000005" not in page.run("return document.documentElement.outerHTML")
    for partition in range(2):
        assert f"{page.world.topics.transactions} {partition}" in page.text("#inputs")
    assert "malformed_json" in page.text("#letters")
    assert "checkpoint" in page.text("#parts")
    rate = "return Number(document.querySelector('#now dd span').textContent.replaceAll(',', ''))"
    page.until(lambda: (page.run(rate) or 0) > 100, "the throughput")
    assert "card-fraud 1 decides, since rollout card-fraud-1; threshold 0.4" in page.text("#champion")
    trial = page.text("#trials")
    for output in (
        "march decides for 10 %",
        "in force from partition 0 offset 811, partition 1 offset 812",
        "824,600",
        "alert rate",
    ):
        assert output in trial
    assert "precision insufficient labels have not been counted; the precision must be at least 0.3" in trial
    missing = f"topic {page.world.topics.suppressed_alerts} does not exist"
    page.until(lambda: f"Not judged by labels: {missing}" in page.text("#trials"), "why there are no labels")
    precision = "return Array.from(document.querySelectorAll('#quality tr'), (one) => one.innerText)"
    page.until(lambda: "rule blocked_card\t50 %\t1\t1\t0" in page.run(precision), "the labels")
    row = "return Array.from(document.querySelector('.compared tbody tr').children, (one) => one.textContent)"
    assert page.run(row) == ["Card-hours with alerts", "1,806", "44", "82"]  # sums over two key groups
    assert page.run(BUTTONS) == []


def test_a_replay_is_shown_while_it_exists(page: Page) -> None:
    page.sign_in("viewer")
    assert not page.is_shown("replays-section")
    assert page.world.settings.work_dir is not None
    directory = page.world.settings.work_dir / "replays" / "better"
    directory.mkdir(parents=True)
    now_ms = int(time.time() * 1000)
    progress = Progress(
        "better", State.RUNNING, now_ms, 3_000, 1_500.0, {"0": 2_000}, {"0": 4_000, "1": 1_000}
    )
    replace_json(directory / FILE, asdict(progress))
    page.until(lambda: page.is_shown("replays-section"), "the replay")
    row = "return document.querySelector('#replays tr').innerText"
    assert page.run(row) == "better\trunning\t3,000\t1,500\t2 s\t0: 50 %, 1: 0 %"
    shutil.rmtree(directory)
    page.until(lambda: not page.is_shown("replays-section"), "the end of the replay")


def test_verdicts_of_the_guards_are_exported(page: Page) -> None:
    output = 'fraud_guard_verdict{challenger="march",fraud_guard_verdict="'

    def is_scraped() -> bool:
        return output in httpx.get(f"{page.world.url}metrics", headers=page.world.bearer("viewer")).text

    page.until(is_scraped, "verdicts of guards among the metrics")


def test_an_invalid_token_is_refused_and_dropped(page: Page) -> None:
    page.browser.type("#token", "fraud_nonsense" + ENTER)
    page.until(lambda: "not known" in page.text("#fault"), "the refusal")
    assert page.run("return sessionStorage.length + localStorage.length + document.cookie.length") == 0


def test_the_token_stays_in_its_tab_until_it_is_removed(page: Page) -> None:
    page.sign_in("viewer")
    stored = page.run("return [localStorage.length, document.cookie, location.href]")
    assert stored == [0, "", page.world.url]
    page.browser.click("#sign-out")
    page.until(lambda: page.is_shown("sign-in"), "the sign-in")
    assert page.run("return sessionStorage.length") == 0


def test_a_verdict_is_announced_once_when_it_changes(page: Page) -> None:
    page.sign_in("viewer")
    assert page.browser.role_and_name("#verdict")[0] == "status"
    page.run(page_scripts.WATCH_VERDICT)
    page.world.rest(waiting=5)
    try:
        page.until(lambda: "STOP" in page.text("#verdict"), "the verdict on a job that rests")
        assert page.text("#reasons li")
    finally:
        page.world.work()
    page.until(lambda: page.text("#verdict").endswith("OK"), "the verdict on a job that works again")
    announced = page.run("return window.said")
    assert any(text.startswith("STOP") for text in announced)
    assert all(first != second for first, second in pairwise(announced))


def test_a_reason_of_two_partitions_is_listed_twice_after_any_number_of_refreshes(page: Page) -> None:
    page.sign_in("viewer")
    listed = "return Array.from(document.querySelectorAll('#reasons strong'), (one) => one.textContent)"
    page.world.rest(waiting=5)
    try:
        page.until(lambda: page.run(listed).count("no commits") == 2, "the reason of each partition")
        looks = page.run(page_scripts.LOOKS)
        page.until(lambda: page.run(page_scripts.LOOKS) >= looks + 3, "three more looks")
        assert page.run(listed).count("no commits") == 2
    finally:
        page.world.work()
    page.until(lambda: page.run(listed) == [], "nothing wrong any more")


def test_a_new_alert_appears_beside_the_earlier_ones(page: Page) -> None:
    page.sign_in("operator")
    page.run("document.querySelector('#alerts li').dataset.marked = 'kept'")
    page.world.alert(burst(77, int(time.time() * 1000)))
    page.until(lambda: "card-000077" in page.text("#alerts li"), "the new alert")
    assert page.run("return document.querySelectorAll('#alerts li[data-marked]').length") == 1


def test_names_and_structure_for_screen_readers(page: Page) -> None:
    page.sign_in("admin")
    landmarks = [page.browser.role_and_name(tag)[0] for tag in ("header", "main", "footer")]
    assert landmarks == ["banner", "main", "contentinfo"]
    parts = {
        "now": "Now", "rollouts": "Rollouts", "alerts": "Alerts", "inputs": "Inputs", "parts": "Parts",
        "letters": "Dead letters", "quality": "Precision",
    }  # fmt: skip
    for part, name in parts.items():
        assert page.browser.role_and_name(f"section[aria-labelledby={part}-title]") == ("region", name)
    tables = page.run(page_scripts.TABLES)
    assert len(tables) >= 5  # those of index.html; each challenger has one more
    for table in tables:
        assert table.pop("caption")
        assert table == {"columns": 0, "rows": 0}
    assert page.run(page_scripts.NAMELESS) == []


def test_a_step_is_opened_and_cancelled_by_keyboard_alone(page: Page) -> None:
    page.sign_in("operator")
    page.browser.open(page.world.url)  # the token is kept; the focus starts at the top
    page.until(lambda: page.run(BUTTONS), "the steps")
    reached: list[str] = []
    while "Pause" not in reached and len(reached) < 40:
        page.browser.press(TAB)
        reached.append(page.run(FOCUSED))
    assert "Skip to content" in reached
    assert reached[-1] == "Pause"
    assert page.run("return getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.browser.press(ENTER)
    assert page.browser.role_and_name("#step") == ("dialog", "Pause: march?")
    assert page.run(FOCUSED) == "step-reason"
    page.browser.press(ESCAPE)
    assert not page.is_open()
    assert page.run(FOCUSED) == "Pause"


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 768, 1280])
def test_it_fits_every_screen_and_can_be_read_in_both_schemes(
    page: Page, tmp_path: Path, width: int, dark: bool
) -> None:
    phone = width < 500
    page.browser.look_like(width, 740 if phone else 1000, dark=dark, phone=phone)
    page.sign_in("operator")
    line = "return document.querySelectorAll('#now polyline[points]').length"
    page.until(lambda: page.run(line), "the line of the throughput")
    root = "document.documentElement"
    assert page.run(f"return {root}.scrollWidth - {root}.clientWidth") == 0
    assert page.run("return window.innerWidth") == width  # a phone zooms out if the page is too wide
    assert page.run(page_scripts.POOR_CONTRAST) == []
    assert page.run("return document.getAnimations().length") == 0  # the browser asks for reduced motion
    picture = tmp_path / f"status-page-{width}-{'dark' if dark else 'light'}.png"
    page.browser.picture(picture)
    if KEPT and (width, dark) in IN_DOCS:
        shutil.copy(picture, KEPT)


def test_an_operator_rolls_back_with_a_reason_in_log_and_audit(page: Page) -> None:
    page.sign_in("operator")
    assert page.run(BUTTONS) == ["Set canary", "Pause", "Roll back"]  # promoting is for admins
    page.browser.click("#trials button.ends")
    page.browser.click("#step-confirm")
    assert page.is_open()  # without a reason no request is sent
    page.browser.type("#step-reason", "too many alerts")
    page.browser.click("#step-confirm")
    page.until(lambda: not page.is_open(), "the end of the dialog")
    announced = page.run("return document.getElementById('said').textContent")
    assert announced == "march is rolled back, event 4"
    history = reading.history(page.world.settings, {})
    assert history.line.trials["march"].phase is Phase.ROLLED_BACK
    last = history.of("march")[-1].event
    event = (last.type, last.actor, last.reason)
    assert event == (Type.ROLLED_BACK, "operator-olga", "too many alerts")
    assert b"too many alerts" in (AuditLog(page.world.settings).last() or b"")
    page.until(lambda: "march" not in page.text("#trials"), "the page without the rollout")
    page.browser.click("summary")
    assert "rolled back" in page.text("#history")
