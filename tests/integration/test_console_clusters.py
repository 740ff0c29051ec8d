"""Database clusters on the console: made, connected to, backed up, restored and deleted."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from cloudcore.databases.clusters.cluster import Schedule
from cloudcore.databases.clusters.rows import CLUSTERS
from cloudcore.db.base import Connection
from tests.integration.console_databases import LIST, furnish_cluster, set_status
from tests.integration.console_shop import Shop, open_shop


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    async with open_shop(tmp_path / "data") as shop:
        yield shop


async def _see(shop: Shop, path: str, status: int = 200) -> str:
    answer = await shop.browser.get(path)
    assert answer.status_code == status, answer.text
    return html.unescape(answer.text)


async def _send(shop: Shop, path: str, status: int = 303, /, **fields: str) -> Any:  # noqa: ANN401
    answer = await shop.browser.post(path, data={"csrf": "csrf", **fields})
    assert answer.status_code == status, answer.text
    return answer


async def _ask(shop: Shop, path: str) -> Any:  # noqa: ANN401 - JSON
    answer = await shop.served.ask("GET", path, token=shop.served.acme.program_token)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_the_password_of_a_new_cluster_is_shown_once(shop: Shop) -> None:
    fields = {"name": "orders", "memory_mb": "256", "cpu_millis": "200", "once": "k" * 20}
    made = (await _send(shop, LIST, 200, **fields)).text
    (password,) = re.findall(r"<code>([\w-]{32})</code>", made)
    (path,) = re.findall(rf'href="({LIST}/[0-9a-f-]+)"', made)
    assert (await _send(shop, LIST, 200, **fields)).text.count(password) >= 1  # a reload
    shown = await _see(shop, path)
    assert password not in shown
    assert "Where it is reached is known once it has been started." in shown
    assert (await _ask(shop, f"/v1/clusters/{path.rpartition('/')[2]}"))["cluster"]["size"] == {
        "memory_mb": 256,
        "cpu_millis": 200,
        "disk_mb": 10_240,
    }
    assert ">orders</a>" in await _see(shop, LIST)
    wrong = html.unescape((await _send(shop, LIST, 400, name="x", memory_mb="1")).text)
    assert re.search(r'id="memory_mb"[^>]* aria-invalid="true"', wrong)


async def test_a_registered_server_is_told_with_a_password_that_is_never_shown_again(
    shop: Shop,
) -> None:
    secret = "  between two spaces "
    fields = {"register_name": "legacy", "host": "db.example.com", "username": "backup"}
    path = f"{LIST}/register"
    wrong = (await _send(shop, path, 400, **{**fields, "password": secret, "port": "0"})).text
    assert secret not in wrong
    assert 'value="db.example.com"' in wrong
    assert re.search(r'id="port"[^>]* aria-invalid="true"', wrong)
    taken = await _send(shop, path, 400, **{**fields, "register_name": "No Name"}, password="x")
    assert re.search(r'id="register_name"[^>]* aria-invalid="true"', taken.text)
    there = (await _send(shop, path, 303, **{**fields, "password": secret})).headers["location"]
    shown = await _see(shop, there)
    assert secret not in shown
    assert "host=db.example.com port=5432 dbname=postgres user=backup sslmode=require" in shown
    assert "Stop this" not in shown
    assert "Reset its owner" not in shown

    def read(tx: Connection) -> Any:  # noqa: ANN401
        return CLUSTERS.find(tx, shop.served.acme.account_id, there.rpartition("/")[2])

    from cloudcore.databases.clusters.states import open_password  # noqa: PLC0415

    found = await shop.served.database.read(read)
    assert open_password(shop.served.keyring, found) == secret


async def test_the_credentials_of_a_registered_server_are_tried_before_they_are_stored(
    shop: Shop,
) -> None:
    given = {"register_name": "legacy", "host": "localhost", "username": "backup", "password": "x"}
    there = (await _send(shop, f"{LIST}/register", 303, **given)).headers["location"]
    assert "Try and store them" in await _see(shop, there)
    path, secret = f"{there}/change-credentials", "another secret"
    wrong = html.unescape((await _send(shop, path, 409, new_password=secret)).text)
    assert re.search(r'id="new_password"[^>]* aria-invalid="true"', wrong)
    assert "he server does not take them: " in wrong, "its address is not public"
    assert secret not in wrong
    wrong = (await _send(shop, path, 400, new_password=secret, new_ca="no roots")).text
    assert re.search(r'id="new_ca"[^>]* aria-invalid="true"', wrong)
    here = await furnish_cluster(shop)
    assert "Try and store them" not in await _see(shop, here.page)


async def test_a_cluster_is_stopped_started_and_gets_another_password(shop: Shop) -> None:
    found = await furnish_cluster(shop)
    shown = await _see(shop, found.page)
    assert "Takes connections" in shown
    assert "user=admin sslmode=verify-full sslrootcert=roots.pem" in shown
    assert '<pre class="mono wraps">ROOTS</pre>' in shown
    assert "Start this" not in shown
    await _send(shop, f"{found.page}/stop")
    assert "Is being changed" in await _see(shop, found.page)
    await set_status(shop, found.cluster, "stopped")
    shown = await _see(shop, found.page)
    assert "Back up now" not in shown
    assert "Start this database cluster" in shown
    await _send(shop, f"{found.page}/start")
    assert (await _ask(shop, f"/v1/clusters/{found.cluster}"))["cluster"]["status"] == "updating"
    asked = (await _send(shop, f"{found.page}/reset-password", 200)).text
    assert "The next page shows the new one, once." in asked
    fields = {"confirmed": "yes", "once": "r" * 20}
    told = (await _send(shop, f"{found.page}/reset-password", 200, **fields)).text
    (password,) = re.findall(r"<code>([\w-]{32})</code>", told)
    assert password not in await _see(shop, found.page)


async def test_backups_are_drawn_and_told(shop: Shop) -> None:
    found = await furnish_cluster(shop)

    def plan(tx: Connection) -> None:
        old = CLUSTERS.lock(tx, shop.served.acme.account_id, found.cluster)
        crons = Schedule(base_cron="0 3 * * 0", incremental_cron="0 3 * * 1-6")
        CLUSTERS.save(tx, structs.replace(old, schedule=crons))

    await shop.served.database.write(plan)
    shown = await _see(shop, found.page)
    _, _, picture = shown.partition('<svg class="map backups"')
    picture = picture.partition("</svg>")[0]
    looks = ("proved", "whole", "failed", "planned", "waiting")
    drawn = {name: picture.count(f'<g class="{name}"') - 1 for name in looks}  # but the legend
    assert drawn == {"proved": 1, "whole": 1, "failed": 1, "planned": 2, "waiting": 0}
    assert picture.count('class="way"') == 1  # from the base to what needs it
    assert "whole, never restored" in picture
    assert "1 restored as a proof, 1 failed" in picture
    assert "Any moment of this can be restored" in picture
    assert "Next base backup" in shown
    assert "BACKUP_FAILED: the bucket is <full>" in shown
    assert "never restored" in shown
    # The cluster, its backups, and what may be done with them.
    shop.calls.clear()
    await _see(shop, found.page)
    assert len(shop.calls) == 3
    async with shop.browser_that_may("database:GetCluster") as browser:
        limited = (await browser.get(found.page)).text
        assert "Your role may not see its backups." in limited
        for words in ('<svg class="map', "Back up now", "Restore to", "Save the sch", "Delete"):
            assert words not in limited


async def test_a_backup_is_asked_for_once(shop: Shop) -> None:
    found = await furnish_cluster(shop)
    fields = {"kind": "incremental", "once": "b" * 20}
    for _ in range(2):
        await _send(shop, f"{found.page}/backups", 303, **fields)
    listed = (await _ask(shop, f"/v1/clusters/{found.cluster}/backups"))["backups"]
    assert [each["kind"] for each in listed] == ["base", "incremental", "base", "incremental"]
    assert listed[-1]["status"] == "pending"
    told = (await _send(shop, LIST, 200, name="bare")).text
    (bare,) = re.findall(rf'href="({LIST}/[0-9a-f-]+)"', told)
    assert "It has no bucket" in await _see(shop, bare)
    assert "has no bucket" in (await _send(shop, f"{bare}/backups", 409)).text


async def test_a_schedule_is_saved_and_what_is_wrong_is_said_beside_its_field(shop: Shop) -> None:
    found = await furnish_cluster(shop)
    path = f"{found.page}/schedule"
    await _send(shop, path, base_cron="0 3 * * 0", base_count="2")
    cluster = (await _ask(shop, f"/v1/clusters/{found.cluster}"))["cluster"]
    assert cluster["schedule"] == {"base_cron": "0 3 * * 0"}
    assert cluster["retention"] == {"base_count": 2}
    wrong = (await _send(shop, path, 400, incremental_cron="0 3 * * 9")).text
    assert re.search(r'id="incremental_cron"[^>]* aria-invalid="true"', wrong)
    wrong = (await _send(shop, path, 400, base_count="101")).text
    assert re.search(r'id="base_count"[^>]* aria-invalid="true"', wrong)
    await _send(shop, path, base_cron="", base_count="")
    cluster = (await _ask(shop, f"/v1/clusters/{found.cluster}"))["cluster"]
    assert not cluster.get("schedule")
    assert not cluster.get("retention")


async def test_a_backup_is_proved_and_restored(shop: Shop) -> None:
    found = await furnish_cluster(shop)
    path = f"{found.page}/backups/{found.incremental}"
    shown = await _see(shop, path)
    assert "Never restored: nobody knows that it can be." in shown
    assert f"{found.page}/backups/{found.base}" in shown
    assert re.search(r'id="memory_mb"[^>]* value="256"', shown)  # as the cluster has
    await _send(shop, f"{path}/verify")
    assert "A proof waits for its turn" in await _see(shop, path)
    wrong = (await _send(shop, f"{path}/restore", 400, restore_name="No Name")).text
    assert re.search(r'id="restore_name"[^>]* aria-invalid="true"', wrong)
    fields = {"restore_name": "copy", "restore_bucket": "backups-of-acme", "memory_mb": "512"}
    told = (await _send(shop, f"{path}/restore", 200, **fields)).text
    assert "It is being restored from shop." in told
    (there,) = re.findall(rf'href="{LIST}/([0-9a-f-]+)"', told)
    new = (await _ask(shop, f"/v1/clusters/{there}"))["cluster"]
    assert (new["name"], new["bucket"]["name"]) == ("copy", "backups-of-acme")
    assert new["source"]["backup_id"] == found.incremental
    assert new["size"]["memory_mb"] == 512
    failed = await _see(shop, f"{found.page}/backups/{found.failed}")
    assert "the bucket is <full>" in failed
    assert "Restore it" not in failed
    assert "Prove it" not in failed
    foreign = shop.served.globex.ids["/v1/clusters/{}"]
    await _see(shop, f"{LIST}/{foreign}", 404)
    await _see(shop, f"{LIST}/{foreign}/backups/{found.base}", 404)


async def test_a_moment_within_the_window_is_restored(shop: Shop) -> None:
    found = await furnish_cluster(shop)
    backup = await _ask(shop, f"/v1/clusters/{found.cluster}/backups/{found.incremental}")
    moment = backup["backup"]["completed_at"]
    assert re.search(
        r"From \d{4}-\S+ [\d:]{8} to \d{4}-\S+ [\d:]{8}\.", await _see(shop, found.page)
    )
    early = {"restore_name": "early", "target_time": "2001-01-01T00:00:00"}
    wrong = (await _send(shop, f"{found.page}/restore", 409, **early)).text
    assert re.search(r'id="target_time"[^>]* aria-invalid="true"', wrong)
    assert "lies between" in wrong
    later = f"{moment[:17]}59"
    fields = {"restore_name": "then", "target_time": later}
    told = (await _send(shop, f"{found.page}/restore", 200, **fields)).text
    (there,) = re.findall(rf'href="{LIST}/([0-9a-f-]+)"', told)
    source = (await _ask(shop, f"/v1/clusters/{there}"))["cluster"]["source"]
    assert source["target_time"].startswith(later)


async def test_what_is_needed_goes_with_what_needs_it(shop: Shop) -> None:
    found = await furnish_cluster(shop)
    path = f"{found.page}/backups/{found.base}"
    asked = (await _send(shop, f"{path}/delete", 200)).text
    assert "Delete the 1 incremental backup that cannot be restored without it, too" in asked
    held = (await _send(shop, f"{path}/delete", 409, confirmed="yes")).text
    assert "1 incremental backups need it" in held
    await _send(shop, f"{path}/delete", confirmed="yes", cascade="on")
    listed = (await _ask(shop, f"/v1/clusters/{found.cluster}/backups"))["backups"]
    assert [each["status"] for each in listed] == ["deleting", "deleting", "failed"]


async def test_a_cluster_with_backups_is_deleted_only_with_them(shop: Shop) -> None:
    found = await furnish_cluster(shop)
    path = f"{found.page}/delete"
    assert "It has 3 backups: it is deleted only with them." in (await _send(shop, path, 200)).text
    held = (await _send(shop, path, 409, confirmed="yes")).text
    assert "he cluster has 2 backups" in html.unescape(held)
    await _send(shop, path, confirmed="yes", cascade="on")
    shown = await _see(shop, found.page)
    assert "Is being deleted" in shown
    for words in ("Change it", "Save the schedule", "Back up now", "Delete this database cluster"):
        assert words not in shown
