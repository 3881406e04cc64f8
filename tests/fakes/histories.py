"""Histories with known changes, as many nightly runs would write them."""

import datetime
import hashlib
import math
from dataclasses import replace
from unittest.mock import patch

import numpy as np

from tests.storage.test_baselines import CONTEXT
from tfbench.model import Ratio
from tfbench.storage.history import Anchor, History, SessionRecord

START = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)
ANCHOR = Anchor("git:v1.0", "0" * 16)


def session(number):
    return f"{(START + datetime.timedelta(days=number)).isoformat(timespec='seconds')}-{number:08x}"


def commit(number):
    return hashlib.sha1(str(number).encode()).hexdigest()


@patch("os.fsync", lambda descriptor: None)  # hundreds of files, which no test needs after a power cut
def nightly(folder, values, *, first=0, anchor=ANCHOR, release=None, machine="x", version="2.21.0", floors=True):
    """Write a run per night.

    Args:
        values: Case -> log-ratio of each run.
        release: Number of the run whose commit is tagged ``v1.1``.
    """
    history, runs = History(folder), len(next(iter(values.values())))
    for number in range(first, first + runs):
        environment = replace(
            CONTEXT.environment, commit=commit(number), dirty=False, machine={"processor": machine},
            packages={"tensorflow": version},
        )  # fmt: skip
        now = {case: float(logs[number - first]) for case, logs in values.items()}
        history.record(
            SessionRecord(
                replace(CONTEXT, session=session(number), environment=environment),
                {case: (1e-4 * math.exp(value), 1.1e-4) for case, value in now.items()} if floors else {},
                {
                    case: Ratio(math.exp(value), math.exp(value - 0.01), math.exp(value + 0.01), 0.95)
                    for case, value in now.items()
                }
                if anchor
                else {},
                anchor,
                ("v1.1",) if number == release else (),
            )
        )


def noise(runs, deviation=0.004, seed=0):
    return np.random.default_rng(seed).normal(0, deviation, runs)


def step(runs, at, size=0.03, deviation=0.004, seed=0):
    values = noise(runs, deviation, seed)
    values[at:] += size
    return values
