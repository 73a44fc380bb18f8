"""The streaming part of a demo: feed, show, stop the feed, wait until everything is decided."""

import re
import threading
import time
from collections import deque
from contextlib import ExitStack
from io import StringIO

from rich.console import Console
from rich.live import Live

from deploy.demo import children, feed, view
from deploy.demo.bring_up import System
from deploy.demo.feed import Feed
from deploy.demo.memory import MemorySampler
from deploy.demo.merchant_watch import MerchantWatch
from deploy.demo.options import Options
from deploy.demo.replay_tour import ReplayTour
from deploy.demo.rollout_tour import RolloutTour
from deploy.demo.sidecar_client import SidecarClient
from deploy.demo.state import Run
from deploy.demo.summary import Measurement
from deploy.demo.tour import Tour
from deploy.demo.view import Moment
from deploy.demo.waiting import wait
from deploy.demo.watch import DemoAlerts, Percentiles
from deploy.local import health
from service.health.groups import partitions

TICK_S = 0.25
CHECK_S = 2.0
"""Interval of checks of the embedded stack; the demo's child processes are checked at every tick."""
LINE_S = 5.0
"""Interval of printed lines, if the output is not a terminal."""
RATE_OVER_S = 5.0
"""Period over which the shown rates are averaged."""
PICTURE_COLUMNS = 128
STREAMING, DRAINING = "streaming", "deciding the rest"


class Session:
    """One load, from its first transaction to the decision on its last."""

    def __init__(
        self,
        options: Options,
        run: Run,
        system: System,
        memory: MemorySampler,
        console: Console,
        enough: threading.Event,
    ) -> None:
        self._options, self._run, self._system = options, run, system
        self._memory, self._console, self._enough = memory, console, enough
        self._merchants: MerchantWatch | None = None
        if options.merchant_labels and options.replay is not None:
            self._merchants = MerchantWatch(options.replay, self._print_line)
        self._alerts = DemoAlerts(
            system.settings.bootstrap_servers, system.settings.topics.fraud_alerts, self._merchants
        )
        self._load = self._make_load()
        self._tour = self._make_tour()
        self._decided_before = self._decided()
        self._history: deque[tuple[float, int, int, int]] = deque()
        """(monotonic time in seconds, sent, decided, commits), oldest first."""
        self._checked = self._printed = self._shown = 0.0

    def _make_load(self) -> Feed:
        system, topics = self._system, self._system.settings.topics
        if system.replay is not None:
            return feed.replayed(self._options, system.endpoints, topics, system.replay, self._merchants)
        assert system.world is not None
        return feed.simulated(self._options, system.endpoints, topics, system.world, int(time.time() * 1_000))

    def _make_tour(self) -> Tour | None:
        options, system = self._options, self._system
        if options.rollouts:
            return RolloutTour(SidecarClient(system.links["sidecar"]), options.data_dir, self._print_line)
        if options.replay_model:
            return ReplayTour(system.settings, self._run, self._print_line)
        return None

    def stream(self) -> Measurement:
        """Feed until the end of the load or Ctrl-C, then wait for the job."""
        self._alerts.start()
        try:
            self._load.start()
            self._alerts.measure_from(self._load.begun_at)
            with ExitStack() as context:
                live = None
                if self._console.is_terminal:
                    live = context.enter_context(Live(console=self._console, auto_refresh=False))
                if self._tour is not None:
                    self._tour.start()
                while not (self._enough.wait(TICK_S) or self._is_over()):
                    self._show(live, STREAMING)
                if self._tour is not None:
                    self._tour.stop()
                self._take_picture()
                self._load.stop()
                fed_at = time.time()
                wait(
                    lambda: self._has_caught_up(fed_at),
                    "the job makes no progress",
                    self._decided,
                    lambda: self._show(live, DRAINING),
                )
                self._alerts.count_rest()
                self._show(live, DRAINING)
            return self._measured()
        finally:
            self._alerts.stop()

    def _is_over(self) -> bool:
        """Return whether to stop feeding: the load has ended, or both the tour and `for_s` are over."""
        if self._tour is None:
            return self._load.has_ended
        enough = time.time() - self._load.begun_at >= (self._options.for_s or 0.0)
        return self._load.has_ended or (self._tour.has_ended and enough)

    def _print_line(self, text: str) -> None:
        self._console.print(text, soft_wrap=True, markup=False)

    def _has_caught_up(self, since: float) -> bool:
        lag = self._system.lag.lag
        return lag is not None and lag.taken_at > since and lag.records == 0

    def _check(self, now: float) -> None:
        children.check(self._run)
        self._load.check()
        self._alerts.update()
        if self._tour is not None and self._tour.fault is not None:
            raise self._tour.fault
        if now - self._checked >= CHECK_S:
            self._checked = now
            health.check(self._options.data_dir)

    def _show(self, live: Live | None, title: str) -> None:
        now = time.monotonic()
        if now - self._shown < TICK_S / 2:
            return
        self._shown = now
        self._check(now)
        self._record_counts(now)
        if live is not None:
            live.update(view.screen(self._moment(now, title), self._system.links, self._hint()), refresh=True)
        elif now - self._printed >= LINE_S:
            self._printed = now
            self._console.print(view.line(self._moment(now, title)), soft_wrap=True)

    def _record_counts(self, now: float) -> None:
        self._history.append((now, self._load.sent, self._decided(), self._system.progress.totals.commits))
        if self._merchants is not None:
            self._merchants.advance(self._decided())
        while now - self._history[0][0] > RATE_OVER_S:
            self._history.popleft()

    def _hint(self) -> str:
        if self._options.for_s is not None:
            return f"for {self._options.for_s:.0f} s; Ctrl-C ends the load now, a second one ends everything"
        return "Ctrl-C ends the load and verifies, a second one ends everything"

    def _moment(self, now: float, title: str) -> Moment:
        _, sent, decided, commits = self._history[-1]
        then, sent_then, decided_then, commits_then = self._history[0]
        seconds = max(now - then, TICK_S)
        lag = self._system.lag.lag
        progress = self._system.progress
        totals = progress.totals
        return Moment(
            title=title,
            elapsed_s=time.time() - self._load.begun_at,
            sent=sent,
            sent_per_s=(sent - sent_then) / seconds,
            decided=decided,
            decided_per_s=(decided - decided_then) / seconds,
            lag=None if lag is None else lag.records,
            alerts=self._alerts.count,
            rules=dict(self._alerts.rules),
            declined_after_change=self._alerts.declined_after_change,
            dead_letters=totals.dead_letters,
            duplicates=totals.counts["duplicates"],
            late=totals.counts["late"],
            recent=Percentiles.of(self._alerts.recent_us),
            profile_changes=self._load.profile_changes,
            memory=self._memory.now,
            commits=commits,
            commits_per_s=(commits - commits_then) / seconds,
            cards=sum(newest["state"]["cards"] for newest in progress.groups.values()),
            latest=list(self._alerts.latest),
            merchants=None if self._merchants is None else str(self._merchants.shares()),
        )

    def _decided(self) -> int:
        """Count the transaction records that have an outcome."""
        counts = self._system.progress.totals.counts
        return sum(counts[name] for name in ("transactions", "duplicates", "dead_letters"))

    def _last_decided_at(self) -> float:
        """Return when the newest transactions were decided, seconds since 1970-01-01 UTC; 0 before any."""
        topic = self._system.settings.topics.transactions
        active = [
            part["active_at"] or 0
            for part in partitions(self._system.progress.groups)
            if part["topic"] == topic
        ]
        return max(active, default=0) / 1_000

    def _take_picture(self) -> None:
        if self._options.picture is None:
            return
        console = Console(record=True, width=PICTURE_COLUMNS, file=StringIO(), force_terminal=True)
        moment = self._moment(time.monotonic(), STREAMING)
        console.print(view.screen(moment, self._system.links, "make demo"))
        svg = console.export_svg(title="fraud demo")
        # the picture loads nothing: it uses the fonts of the viewer
        self._options.picture.write_text(re.sub(r"@font-face\s*{[^}]*}", "", svg))

    def _measured(self) -> Measurement:
        seconds = self._last_decided_at() - self._load.begun_at
        decided = self._decided() - self._decided_before
        return Measurement(
            latency=self._alerts.latency(),
            events_per_s=decided / seconds if seconds > 0 else 0.0,
            seconds=max(seconds, 0.0),
            peak_memory=self._memory.peak,
            rules=dict(self._alerts.rules),
            declined_after_change=self._alerts.declined_after_change,
            profile_changes=self._load.profile_changes,
            restarts=self._run.restarts,
            tour={} if self._tour is None else {self._tour.subject: self._tour.results},
            merchants=None if self._merchants is None else self._merchants.report(),
        )
