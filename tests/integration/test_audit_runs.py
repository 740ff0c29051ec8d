"""Runs that deleted something are events of the audit log, with their counts."""

from __future__ import annotations

import msgspec

from cloudcore.audit.rows import AuditFilter, AuditRow, list_events
from tests.databases import on_both_databases
from tests.integration.lifecycle_world import LifecycleWorld

pytestmark = on_both_databases

RULE = {"priority": 1, "selector": "untagged", "older_than_days": 7}


async def events(lifecycle: LifecycleWorld) -> list[AuditRow]:
    """Return the events of runs."""
    wanted = AuditFilter(action="registry:RunLifecyclePolicy")
    page = await lifecycle.install.database.read(list_events, lifecycle.account.id, wanted, None, 9)
    return list(page.rows)


async def test_a_run_is_one_event_whatever_it_deleted(lifecycle: LifecycleWorld) -> None:
    await lifecycle.push_image("one")
    await lifecycle.push_image("two")
    await lifecycle.push_image("kept", "v1")
    await lifecycle.pass_days(8)
    run = await lifecycle.run(RULE)
    assert run["expired"] == 2
    (event,) = await events(lifecycle)
    details = msgspec.json.decode(event.details)
    assert details["run"].endswith(f":lifecycle-run/{run['id']}")
    assert (details["state"], details["expired"]) == ("succeeded", 2)
    assert event.principal == run["started_by"]
    assert (event.source_name, event.plane) == (run["started_by_source"]["name"], None)
    assert event.resource.endswith(f":repository/{lifecycle.name.partition('/')[2]}")
    await lifecycle.run()
    assert len(await events(lifecycle)) == 1  # the second run deleted nothing
