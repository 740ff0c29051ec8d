"""Sending identities, load balancers and instance pools on the console."""

from __future__ import annotations

import html
from pathlib import Path

from msgspec import structs

from cloudcore.db.base import Connection
from cloudcore.email.resources import SendingIdentity
from cloudcore.email.sender_rows import IDENTITY_ROWS
from cloudcore.jobs.faults import Fault
from cloudcore.loadbalancer import rows as balancer_rows
from cloudcore.loadbalancer.load_balancer import SeenTarget
from cloudcore.nodes.output import NEWER
from registry.settings.node import NodeSettings
from tests.integration.console_shop import Shop, open_shop

IDENTITIES = "/console/services/identities"
BALANCERS = "/console/services/load-balancers"


async def change(shop: Shop, identity_id: str, **fields: object) -> None:
    """Change the row of an identity, as its work would."""

    def changed(tx: Connection) -> SendingIdentity:
        found = IDENTITY_ROWS.lock(tx, shop.served.acme.account_id, identity_id)
        return IDENTITY_ROWS.save(tx, structs.replace(found, **fields))

    await shop.served.database.write(changed)


async def test_the_page_of_a_domain_has_its_records_and_what_is_wrong(shop: Shop) -> None:
    body = {"kind": "domain", "value": "shop.example"}
    token = shop.served.acme.program_token
    made = await shop.served.make("/v1/identities", body, token=token)
    record = made["dkim"]
    fault = Fault("DKIM_RECORD_MISSING", "publish it", 1, 1, 1)
    await change(shop, made["id"], faults=(fault,), checked_at=1)
    page = (await shop.browser.get(f"{IDENTITIES}/{made['id']}")).text
    for text in (record["record_name"], record["record_value"], "_dmarc.shop.example"):
        assert f"<code>{text}</code>" in page
    assert "publish it" in page
    assert "Confirm the address" not in page
    asked = await shop.browser.post(f"{IDENTITIES}/{made['id']}/verify", data={"csrf": "csrf"})
    assert asked.status_code == 303, asked.text
    shown = (await shop.browser.get(asked.headers["location"])).text
    assert "being looked for" in shown


async def test_the_page_of_an_address_says_what_it_waits_for(shop: Shop) -> None:
    body = {"kind": "address", "value": "ada@shop.example"}
    token = shop.served.acme.program_token
    made = await shop.served.make("/v1/identities", body, token=token)
    page = (await shop.browser.get(f"{IDENTITIES}/{made['id']}")).text
    assert "Confirm the address" in page
    assert "Publish these records" not in page
    assert f"{made['id']}/verify" in page
    await change(shop, made["id"], status="verified", verified_at=1)
    page = (await shop.browser.get(f"{IDENTITIES}/{made['id']}")).text
    assert "Confirm the address" not in page
    assert f"{made['id']}/verify" not in page


async def test_a_load_balancer_is_shown_changed_and_torn_down(shop: Shop) -> None:
    browser, served = shop.browser, shop.served
    acme, held = served.acme.account_id, served.acme.ids["/v1/load-balancers/{}"]
    listed = (await browser.get(BALANCERS)).text
    assert ">held</a>" in listed
    assert "Is being made" in listed
    path = f"{BALANCERS}/{held}"
    shown = (await browser.get(path)).text
    assert "Is being made at 192.0.2." in shown
    assert "0 of 2 proxies run on" in shown
    assert "No connections can go there now." in shown

    def see(tx: Connection) -> None:
        found = balancer_rows.ROWS.lock(tx, acme, held)
        one = SeenTarget("held", "x", 80, address="10.0.0.9", state="unhealthy")
        seen = (one, structs.replace(one, id="y", instance_id=held))
        balancer_rows.ROWS.save(tx, structs.replace(found, status="active", targets=seen))

    await served.database.write(see)
    shown = (await browser.get(path)).text
    assert "Serves at 192.0.2." in shown
    assert '<span class="mark has">unhealthy</span>' in shown
    fields = {"csrf": "csrf", "replica_count": "3"}
    changed = await browser.post(path, data={**fields, "description": "The front", "tags": ""})
    assert changed.status_code == 303, changed.text
    assert "0 of 3 proxies" in (await browser.get(path)).text
    asked = await browser.post(f"{path}/delete", data={"csrf": "csrf"})
    assert "Nothing is reached at 192.0.2." in asked.text
    gone = await browser.post(f"{path}/delete", data={"csrf": "csrf", "confirmed": "yes"})
    assert gone.status_code == 303
    assert "Is being torn down at 192.0.2." in (await browser.get(path)).text


async def test_the_page_of_a_pool_shows_its_instances_and_where_their_output_is(
    tmp_path: Path,
) -> None:
    async with open_shop(tmp_path / "data") as shop:
        ids = shop.served.acme.ids
        address = f"/console/services/instance-pools/{ids['/v1/instance-pools/{}']}"
        listed = (await shop.browser.get("/console/services/instance-pools")).text
        assert "instance-pool-0" in listed
        page = (await shop.browser.get(address)).text
        instance = ids["/v1/instance-pools/{}/instances/{}"]
        assert "0 of 1 are ready" in page
        assert (
            page.index('name="size"') < page.index("More settings") < page.index('name="memory_mb"')
        )
        assert "<dt>Memory (MiB)</dt>" in page
        assert "<dt>CPU (thousandths)</dt>" in page
        assert f"{address}?logs={instance}#output" in html.unescape(page)
        assert "wrote last" not in page
        asked = await shop.browser.get(f"{address}?logs={instance}")
        assert (asked.status_code, "wrote last" in asked.text) == (200, True)
        assert "It has written nothing." in asked.text
        output = tmp_path / "data" / "nodes" / NodeSettings().name / "instances" / instance
        output.mkdir(parents=True)
        (output / NEWER).write_text("<b>up</b>\n" * 3)
        asked = await shop.browser.get(f"{address}?logs={instance}")
        assert "&lt;b&gt;up&lt;/b&gt;" in asked.text
        foreign = shop.served.globex.ids["/v1/instance-pools/{}/instances/{}"]
        assert "wrote last" not in (await shop.browser.get(f"{address}?logs={foreign}")).text
