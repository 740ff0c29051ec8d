"""Wrong secrets of an access key in the audit log, wherever a client may show one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from cloudcore.identity.names import iam_crn
from tests.databases import on_both_databases
from tests.integration.s3_client import HOST, client_of
from tests.integration.served_world import Served, open_served
from tests.tenants import basic

WRONG = "A" * 40


@pytest.fixture
async def served(tmp_path: Path, metadata_url: str) -> AsyncIterator[Served]:
    async with open_served(tmp_path / "data", metadata_url, s3_host=HOST) as served:
        yield served


async def log_in(served: Served, key_id: str, secret: str) -> int:
    """Exchange an access key for a bearer, as a container client does; return the status."""
    answer = await served.ask("GET", "/v2/token", headers=basic(secret, key_id))
    return answer.status_code


@on_both_databases
async def test_wrong_secrets_are_counted_on_every_plane(served: Served) -> None:
    acme = served.acme
    key_id = acme.access_key_id
    crn = iam_crn(acme.account_id, "service-account", "program")

    async def refused() -> list[tuple[str, int, str, list[str]]]:
        await served.auditor.flush()
        query = httpx.QueryParams(action="iam:SignIn", outcome="refused")
        answer = await served.ask("GET", f"/v1/audit-events?{query}", token=acme.program_token)
        return [
            (each["principal"], each["times"], each["plane"], each["resources"])
            for each in answer.json()["events"]
        ]

    s3 = client_of(served, acme)
    await s3.done("GET", "/")
    assert await refused() == []
    assert await replace(s3, secret=WRONG).code("GET", "/") == "SignatureDoesNotMatch"
    assert await replace(s3, token="a").code("GET", "/") == "InvalidToken"
    assert await replace(s3, key_id=f"AK{'Z' * 18}").code("GET", "/") == "InvalidAccessKeyId"
    assert [each[:2] for each in await refused()] == [(crn, 2)]

    assert await log_in(served, key_id, acme.secret) == 401  # not switched on
    change = {"access_key_login": True}
    await served.ask("PATCH", "/v1/registry-settings", change, token=acme.program_token)
    assert await log_in(served, key_id, acme.secret) == 200
    assert await log_in(served, key_id, WRONG) == 401
    assert await log_in(served, f"AK{'Z' * 18}", WRONG) == 401
    assert await refused() == [(crn, 4, "data", [crn])]
