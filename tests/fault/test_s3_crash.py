"""SIGKILL at every call of S3 that an upload makes: what was acknowledged is there, and right.

A child process is forked for each kill. It dies after a call that changes something, or after the
first call that follows an acknowledgement: after others it leaves the same. What is left is taken
up by another process, which knows nothing of it. A run tries a third of such calls by plain
uploads, another by sealed and the last by packed ones; ``SOAK=20`` tries all by each, of twenty
times as many uploads.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import botocore.client
import pytest

from registry.blobstore.base import DataKey
from registry.blobstore.disk.files import DiskFiles
from registry.blobstore.s3.bucket import Bucket
from registry.blobstore.s3.files import S3Files
from registry.settings.store import StoreSettings
from tests.fault.uploads import (
    Acknowledge,
    Acknowledged,
    Plan,
    acknowledged_before_death,
    check_recovered,
    plans,
    upload,
)
from tests.s3_servers import credentials, settings_for
from tests.small_frames import KEY, PACKED_KEY, small_frames
from tests.soak import IS_SOAK, times

SEEDS = times(1)
EVERY = 1 if IS_SOAK else 3
KEYS = (None, KEY, PACKED_KEY)
CHANGES = frozenset(
    {
        *("CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload"),
        *("PutObject", "DeleteObjects"),
    }
)


@pytest.fixture(params=KEYS, ids=["plain", "sealed", "packed"])
def key(request: pytest.FixtureRequest) -> Iterator[DataKey | None]:
    with small_frames(), credentials():
        yield request.param


def opened(settings: StoreSettings) -> Any:  # noqa: ANN401 - it has the calls of DiskFiles
    """Return the store as a new process has it, with parts of some hundred bytes."""
    return S3Files(Bucket(settings), compresses=True, sizes=lambda number: 300 + number)


def plan_of(seed: int, key: DataKey | None) -> Plan:
    """Return an upload of several requests, of which one is empty."""
    return plans(seed, key)[-1]


class Calls:
    """Counts the calls of S3 of this process, and dies at one of them."""

    def __init__(self, when: int = -1) -> None:
        self.when = when
        self.names: list[str] = []

    def watch(self, patch: pytest.MonkeyPatch) -> None:
        """Stand between boto3 and the server."""
        original = botocore.client.BaseClient._make_api_call

        def call(client: Any, name: str, fields: Any) -> Any:  # noqa: ANN401 - boto3's
            number = len(self.names)
            self.names.append(name)
            try:
                return original(client, name, fields)
            finally:
                if number == self.when:
                    os.kill(os.getpid(), signal.SIGKILL)

        patch.setattr(botocore.client.BaseClient, "_make_api_call", call)


def run_and_die(settings: StoreSettings, plan: Plan, calls: Calls) -> Acknowledged:
    """Upload in a child that dies at a call; return what it had acknowledged."""

    def work(acknowledge: Acknowledge) -> None:
        with pytest.MonkeyPatch.context() as patch:
            calls.watch(patch)
            upload(opened(settings), plan, acknowledge)

    return acknowledged_before_death(work, f"call {calls.when}")


def clear(store: DiskFiles, plan: Plan) -> None:
    store.discard(plan.upload_id)
    store.delete(plan.upload_id)
    assert list(store.list_objects()) == []
    assert list(store.list_staged()) == []


@pytest.mark.timeout(300 + 200 * SEEDS)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_kill_at_any_call_loses_nothing_acknowledged(seed: int, key: DataKey | None) -> None:
    settings, plan, calls = settings_for("moto"), plan_of(seed, key), Calls()
    deadly: set[int] = set()
    with closing(opened(settings)) as store, pytest.MonkeyPatch.context() as patch:
        calls.watch(patch)
        upload(store, plan, lambda *_: deadly.add(len(calls.names)))
        made = {name for name in calls.names if not name.startswith(("Get", "Head", "List"))}
        assert made == CHANGES
        clear(store, plan)
    deadly |= {at for at, name in enumerate(calls.names) if name in CHANGES}
    last = max(at for at, name in enumerate(calls.names) if name == "CompleteMultipartUpload")
    tried = [when for when in sorted(deadly) if when < last][KEYS.index(key) % EVERY :: EVERY]
    acknowledged = 0
    for when in tried:
        rows = run_and_die(settings, plan, Calls(when))
        acknowledged += len(rows.offsets)
        with closing(opened(settings)) as store:
            check_recovered(store, plan, rows)
            clear(store, plan)
    assert len(tried) > 6
    assert acknowledged > len(tried) // 2
