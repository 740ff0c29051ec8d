"""What ``/metrics`` prints of a registry, and that the dashboard and the alerts ask for no more."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import sqlite3
import subprocess
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from cloudcore.clock import MICROSECONDS, system_clock
from cloudcore.jobs import metrics
from cloudcore.serving.asgi import Message
from cloudcore.serving.counters import Counters
from cloudcore.serving.metrics import MetricsApplication
from cloudcore.serving.request_record import RequestRecord
from registry.backup.taking import BackupOptions, take_backup
from registry.blobstore.backups import backup_times, recorded_backup
from registry.composition.dev import DEV
from registry.composition.main import Registry, application, prepare
from registry.composition.metrics import APPLICATION_EVENTS, ChorePeriods, folders_of, measure
from registry.composition.planes import PLANES
from registry.gc.orphans import EVERY_SECONDS
from registry.oci.digest import digest_of
from registry.services.collector_runs import start_collection
from registry.settings.node import NodeSettings
from registry.settings.settings import Settings
from tests.databases import ROOT, planted
from tests.inprocess import ManualClock
from tests.jobs import until

DASHBOARD: Final = ROOT / "deploy" / "grafana" / "entrepot.json"
ALERTS: Final = ROOT / "deploy" / "prometheus" / "alerts.yml"
METRIC: Final = re.compile(r"\bentrepot_[a-z0-9_]+")


async def scrape(metrics: MetricsApplication) -> str:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        raise AssertionError

    await metrics({"type": "http", "method": "GET", "path": "/metrics"}, receive, send)
    return str(sent[1]["body"].decode())


async def printed(tmp_path: Path) -> str:
    """Return what is printed of a registry to which a blob was pushed, after a collector's run."""
    settings = Settings(data=planted(tmp_path / "data"))
    prepare(settings)
    counters = Counters(1, PLANES, APPLICATION_EVENTS)
    counter = counters.counter(0)
    registry = Registry(settings, DEV)
    made = application(registry)
    made.on_event = counter.count
    now = [0.0]
    metrics = MetricsApplication(counters, made.measure, lambda: now[0])
    await registry.start()
    try:
        transport = httpx.ASGITransport(made)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            path = f"/v2/dev/app/blobs/uploads/?digest={digest_of(b'blob')}"
            assert (await client.post(path, content=b"blob")).status_code == 201
            opened = await client.post("/v2/dev/app/blobs/uploads/")
            begun = await client.patch(opened.headers["location"], content=b"some")
            assert (opened.status_code, begun.status_code) == (202, 202)
        async with registry.open() as process:
            ctx = process.ctx
            (account_id,) = [
                row[0] for row in rows(settings, "SELECT id FROM accounts WHERE handle = 'dev'")
            ]
            change = ctx.change_by("")
            await ctx.database.write(start_collection, account_id, ctx.new_id(), change)
        options = BackupOptions()
        await asyncio.to_thread(take_backup, settings, tmp_path / "backup", _silent, options)
        await until(lambda: has_ended_chore(settings))
        counter(
            RequestRecord(0.0, 0.1, "", "GET", b"/v2/", b"", 200, 0, 0, "", PLANES.find(b"/v2/"))
        )
        text = ""

        async def is_collected() -> bool:
            nonlocal text
            now[0] += 10
            counter.publish(in_flight=0)
            text = await scrape(metrics)
            return 'runs_ended_total{outcome="succeeded",run="collection"} 1.0' in text

        await until(is_collected)
        return text
    finally:
        await registry.stop()


def _silent(_progress: object) -> None:
    """Tell nobody of progress."""


async def has_ended_chore(settings: Settings) -> bool:
    """Let the orphan scan have had a turn, once its row is there and nobody takes one.

    Its next one is then a whole period away. By itself it would come with the next five minutes of
    the clock, which may be any moment.
    """
    next_turn = system_clock() + EVERY_SECONDS * MICROSECONDS
    return bool(
        rows(
            settings,
            f"UPDATE schedules SET ended_at = 1, due_at = {next_turn}"
            " WHERE name = 'registry.orphan_scan' AND lease_token IS NULL RETURNING name",
        )
    )


def rows(settings: Settings, statement: str) -> list[Any]:
    path = settings.data / "metadata.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        return database.execute(statement).fetchall()


async def test_a_registry_is_measured_and_shown(tmp_path: Path) -> None:
    text = await printed(tmp_path)
    check_values(text)
    check_dashboard_and_alerts(set(re.findall(r"^(entrepot_[a-z0-9_]+)", text, re.MULTILINE)))


def check_values(printed: str) -> None:
    found = {
        name: float(value)
        for name, value in re.findall(r"^(entrepot_\S+) (\S+)$", printed, re.MULTILINE)
    }
    size, free = found["entrepot_disk_size_bytes"], found["entrepot_disk_free_bytes"]
    assert size > free > 0
    assert found["entrepot_database_size_bytes"] > 100_000
    assert found["entrepot_data_size_bytes"] >= found["entrepot_database_size_bytes"] // 4096 * 4096
    assert found['entrepot_quota_refusals_total{quota="role_sessions"}'] == 0
    assert found["entrepot_uploads_open"] == 1
    assert found['entrepot_uploads_open_limit{of="account"}'] == 5000
    assert found["entrepot_database_changes_total"] >= 4
    assert found["entrepot_database_change_seconds_total"] > 0
    assert found["entrepot_database_change_failures_total"] == 0
    assert found['entrepot_jobs_ended_total{outcome="succeeded"}'] == 1
    assert found['entrepot_chore_failed{chore="registry.orphan_scan"}'] == 0
    assert found["entrepot_collector_freed_bytes_total"] == 0
    assert found[f'entrepot_node_info{{node="{NodeSettings().name}"}}'] == 1
    assert found["entrepot_backup_running_seconds"] == 0
    assert 0 <= time.time() - found["entrepot_backup_finished_timestamp_seconds"] < 300
    # The turn of 1970 is late; chores that had none are not, since the server has just started.
    late = {name: value for name, value in found.items() if "chore_late" in name and value}
    assert [*late] == ['entrepot_chore_late_seconds{chore="registry.orphan_scan"}']
    assert found["entrepot_measured"] == 1


def check_dashboard_and_alerts(shown: set[str]) -> None:
    shown.add("entrepot_jobs_unfinished")  # shown only while there are such jobs
    shown.add("entrepot_tls_certificate_expiry_seconds")  # shown only with a certificate
    shown.add("entrepot_node_seen_seconds")  # shown only by "entrepot serve"
    dashboard = json.loads(DASHBOARD.read_text())
    asked = {
        name
        for panel in dashboard["panels"]
        for target in panel.get("targets", ())
        for name in METRIC.findall(target["expr"])
    }
    assert len(asked) > 15
    assert asked <= shown
    alerts = set(METRIC.findall(ALERTS.read_text()))
    assert len(alerts) > 8
    assert alerts <= shown
    parts = ("_created", "_sum", "_count")
    assert {name for name in shown - asked - alerts if not name.endswith(parts)} == {
        "entrepot_uploads_open_limit",
        "entrepot_tls_failed_handshakes_total",
        "entrepot_node_info",
    }
    panels = [panel["gridPos"] for panel in dashboard["panels"]]
    assert all(panel["x"] + panel["w"] <= 24 for panel in panels)
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(panels)


async def test_what_never_ends_is_measured(tmp_path: Path) -> None:
    """A chore whose turn hangs, one that no worker takes, and a backup that hangs or has died."""
    settings = Settings(data=planted(tmp_path / "data"))
    prepare(settings)
    clock = ManualClock()
    clock.now = 1_800_000_000 * MICROSECONDS
    hour = 3600 * MICROSECONDS
    rows(settings, "INSERT INTO schedules (name, due_at) VALUES ('taken', 0), ('never', 0)")
    periods = ChorePeriods({"taken": 3600, "never": 60}, clock.now)

    async with Registry(settings, clock=clock).open() as process:

        async def measured(word: str) -> dict[str, int]:
            gauges = await measure(settings, process.ctx, folders_of(settings), periods)
            found = [each for each in gauges if word in each.metric]
            return {each.labels.get("chore", each.metric): round(each.value) for each in found}

        rows(settings, f"UPDATE schedules SET ended_at = {clock.now - hour} WHERE name = 'taken'")
        assert await measured("chore_late") == {"taken": 0, "never": 0}
        clock.now += 3 * hour
        assert await measured("chore_late") == {"taken": 3 * 3600, "never": 3 * 3600 - 60}

        running = "entrepot_backup_running_seconds"
        finished = "entrepot_backup_finished_timestamp_seconds"
        assert await measured("backup") == {running: 0}
        with recorded_backup(settings.blobs, clock) as complete:
            clock.now += 7 * hour
            assert await measured("backup") == {running: 7 * 3600}
            with recorded_backup(settings.blobs, clock):  # another at the same time changes nothing
                assert await measured("backup") == {running: 7 * 3600}
            complete()
        ended = round(clock.now / MICROSECONDS)
        clock.now += hour
        assert await measured("backup") == {running: 0, finished: ended}
        with suppress(KeyboardInterrupt), recorded_backup(settings.blobs, clock):
            raise KeyboardInterrupt  # it ends before it is complete
        assert await measured("backup") == {running: 0, finished: ended}


def test_a_note_that_cannot_be_written_stops_no_backup(tmp_path: Path) -> None:
    with recorded_backup(tmp_path / "absent") as complete:
        complete()
    assert backup_times(tmp_path / "absent") == (None, None)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_prometheus_takes_the_alerts() -> None:
    checked = subprocess.run(
        ["promtool", "check", "rules", str(ALERTS)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_figures_of_jobs_read_a_bounded_part_of_an_index(sqlite_database: str) -> None:
    path = sqlite_database.removeprefix("sqlite:///")
    text = metrics._UNFINISHED.sqlite
    with closing(sqlite3.connect(path)) as database:
        plan = database.execute(f"EXPLAIN QUERY PLAN {text}", {"now": 0}).fetchall()
    details = [row[3] for row in plan]
    assert any("jobs USING INDEX ix_jobs_due" in detail for detail in details), details
    assert not any("ORDER BY" in detail for detail in details), details
    assert f"LIMIT {metrics.MAX_COUNTED_JOBS}" in " ".join(text.split())
