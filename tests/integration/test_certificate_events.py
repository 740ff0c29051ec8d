"""What event rules tell of certificates."""

from __future__ import annotations

import json
from typing import Any, Final

from sqlalchemy import select

from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement
from cloudcore.jobs.outbox import outbox
from tests.databases import on_both_databases
from tests.integration.certificates_world import DAY, World, upload

EVENTS: Final = Statement(select(outbox.c.type, outbox.c.payload).order_by(outbox.c.sequence))


@on_both_databases
async def test_event_rules_name_what_happens_to_certificates(certified: World) -> None:
    served, token = certified.served, certified.token()
    topic = await served.make("/v1/topics", {"name": "tls"}, token=token)
    rule = {"topic": topic["crn"], "event_types": ["certificate.*"]}
    await served.make("/v1/event-rules", rule, token=token)
    made = await certified.issued()
    await certified.ask("POST", f"/{made['id']}/revoke")
    await certified.work()
    told = await served.database.read(events)
    assert [each[0] for each in told] == [
        "certificate.certificate.issued",
        "certificate.certificate.revoked",
    ]
    data = told[0][1]["data"]
    assert data["certificate"] == {name: made[name] for name in ("id", "crn", "name")}
    assert data["fingerprint"] == made["fingerprint"]


@on_both_databases
async def test_the_end_of_an_upload_is_told_thirty_and_seven_days_before(certified: World) -> None:
    served, token = certified.served, certified.token()
    topic = await served.make("/v1/topics", {"name": "tls"}, token=token)
    rule = {"topic": topic["crn"], "event_types": ["certificate.certificate.expiring"]}
    await served.make("/v1/event-rules", rule, token=token)
    made = await upload(certified, "web")  # for 90 days
    await certified.issued("other")
    counts = []
    for days in (59, 2, 1, 20, 1, 1, 8):
        await certified.work(after=days * DAY)
        counts.append(len(await served.database.read(events)))
    assert counts == [0, 1, 1, 1, 2, 2, 2]
    for _, payload in await served.database.read(events):
        assert (payload["data"]["status"], payload["data"]["expires_at"]) == (
            "active",
            made["expires_at"],
        )


def events(tx: Connection) -> list[tuple[str, Any]]:
    """Return type and payload of the events in the outbox about the certificate web."""
    told = [(row[0], json.loads(row[1])) for row in tx.rows(EVENTS)]
    return [each for each in told if each[1]["data"]["certificate"]["name"] == "web"]
