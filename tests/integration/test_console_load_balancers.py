"""Load balancers on the console: what listens, how the targets are, a change and the teardown."""

from __future__ import annotations

from pathlib import Path

from msgspec import structs

from cloudcore.db.base import Connection
from cloudcore.loadbalancer.load_balancer import SeenTarget
from cloudcore.loadbalancer.rows import ROWS
from tests.integration.console_shop import open_shop

LIST = "/console/services/load-balancers"


async def test_one_is_shown_changed_and_torn_down(tmp_path: Path) -> None:
    async with open_shop(tmp_path / "data") as shop:
        browser, served = shop.browser, shop.served
        acme, held = served.acme.account_id, served.acme.ids["/v1/load-balancers/{}"]
        listed = (await browser.get(LIST)).text
        assert ">held</a>" in listed
        assert "Is being made" in listed
        path = f"{LIST}/{held}"
        shown = (await browser.get(path)).text
        assert "Is being made at 192.0.2." in shown
        assert "0 of 2 proxies run on" in shown
        assert "No connections can go there now." in shown

        def see(tx: Connection) -> None:
            found = ROWS.lock(tx, acme, held)
            one = SeenTarget("held", "x", 80, address="10.0.0.9", state="unhealthy")
            seen = (one, structs.replace(one, id="y", instance_id=held))
            ROWS.save(tx, structs.replace(found, status="active", targets=seen))

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
