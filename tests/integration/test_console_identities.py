"""Sending identities on the console: what a domain publishes, and how an address is confirmed."""

from __future__ import annotations

from pathlib import Path

from msgspec import structs

from cloudcore.db.base import Connection
from cloudcore.email.resources import SendingIdentity
from cloudcore.email.sender_rows import IDENTITY_ROWS
from cloudcore.jobs.faults import Fault
from tests.integration.console_shop import Shop, open_shop

PATH = "/console/services/identities"


async def change(shop: Shop, identity_id: str, **fields: object) -> None:
    """Change the row of an identity, as its work would."""

    def changed(tx: Connection) -> SendingIdentity:
        found = IDENTITY_ROWS.lock(tx, shop.served.acme.account_id, identity_id)
        return IDENTITY_ROWS.save(tx, structs.replace(found, **fields))

    await shop.served.database.write(changed)


async def test_the_page_of_a_domain_has_its_records_and_what_is_wrong(tmp_path: Path) -> None:
    async with open_shop(tmp_path / "data") as shop:
        body = {"kind": "domain", "value": "shop.example"}
        token = shop.served.acme.program_token
        made = await shop.served.make("/v1/identities", body, token=token)
        record = made["dkim"]
        fault = Fault("DKIM_RECORD_MISSING", "publish it", 1, 1, 1)
        await change(shop, made["id"], faults=(fault,), checked_at=1)
        page = (await shop.browser.get(f"{PATH}/{made['id']}")).text
        for text in (record["record_name"], record["record_value"], "_dmarc.shop.example"):
            assert f"<code>{text}</code>" in page
        assert "publish it" in page
        assert "Confirm the address" not in page
        asked = await shop.browser.post(f"{PATH}/{made['id']}/verify", data={"csrf": "csrf"})
        assert asked.status_code == 303, asked.text
        shown = (await shop.browser.get(asked.headers["location"])).text
        assert "being looked for" in shown


async def test_the_page_of_an_address_says_what_it_waits_for(tmp_path: Path) -> None:
    async with open_shop(tmp_path / "data") as shop:
        body = {"kind": "address", "value": "ada@shop.example"}
        token = shop.served.acme.program_token
        made = await shop.served.make("/v1/identities", body, token=token)
        page = (await shop.browser.get(f"{PATH}/{made['id']}")).text
        assert "Confirm the address" in page
        assert "Publish these records" not in page
        assert f"{made['id']}/verify" in page
        await change(shop, made["id"], status="verified", verified_at=1)
        page = (await shop.browser.get(f"{PATH}/{made['id']}")).text
        assert "Confirm the address" not in page
        assert f"{made['id']}/verify" not in page
