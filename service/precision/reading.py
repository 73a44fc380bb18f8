"""The labelled cards of a trial, read once from the topics."""

import time

from service.precision.errors import UnreadError
from service.precision.trial import LabelCounts, LabelledTrial
from service.precision.trial_topics import TrialTopics
from service.settings import ServiceSettings

SILENCE_S = 15.0
"""Seconds without any record after which reading ends, even if a topic has not been read to its end."""


def read(settings: ServiceSettings, trial: LabelledTrial, now_ms: int) -> LabelCounts:
    """Read a trial's alerts and labels to their ends; if that fails, `waiting_for` of the counts says why.

    Args:
        settings: brokers and topics.
        trial: the trial.
        now_ms: the time now, ms since 1970-01-01 UTC.
    """
    try:
        with TrialTopics(settings, trial, now_ms) as topics:
            deadline = time.monotonic() + SILENCE_S
            while topics.counts().waiting_for is not None and time.monotonic() < deadline:
                if topics.read():
                    deadline = time.monotonic() + SILENCE_S
            return topics.counts()
    except UnreadError as fault:
        return LabelCounts(waiting_for=str(fault))
