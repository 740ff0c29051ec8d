"""Routes, rules and attachments in the console: added, taken away, and said what is wrong."""

from __future__ import annotations

import html
import re
from pathlib import Path

from tests.integration.console_access import refusal, see, told
from tests.integration.console_shop import open_shop

SERVICES = "/console/services"


async def test_a_person_opens_the_way_out_of_a_vpc(tmp_path: Path) -> None:
    async with open_shop(tmp_path / "data") as shop:
        token = shop.served.acme.program_token

        async def make(many: str, **body: object) -> str:
            made = await shop.served.make(f"/v1/{many}", body, token=token)
            return f"{SERVICES}/{many}/{made['id']}"

        await make("vpcs", name="shop", cidr_ipv4="10.1.0.0/16", cidr_ipv6="fd00::/48")
        gateway = await make("internet-gateways", name="uplink")
        assert "Attach it" in await see(shop, gateway)
        assert await refusal(shop, f"{gateway}/attach", 404, vpc="nowhere")
        attached = await told(shop, f"{gateway}/attach", vpc="shop")
        assert "It is attached." in attached
        assert "Attach it" not in attached
        egress = await make("egress-only-gateways", name="out", vpc="shop")

        table = await make("route-tables", name="ways", vpc="shop")
        assert await see(shop, table)
        added = await told(shop, f"{table}/routes", destination="::/0", target="out")
        assert ":egress-only-gateway/out</td>" in added
        assert added.count("/routes/remove") == 1, "what is local stays"
        again = await told(shop, f"{table}/routes", destination="::/0", target="uplink")
        assert ":egress-only-gateway/out</td>" not in again
        assert ":internet-gateway/uplink</td>" in again
        wrong = await refusal(shop, f"{table}/routes", 400, destination="x", target="out")
        assert "a network such as" in wrong
        asked = await refusal(shop, f"{gateway}/detach", 409, confirmed="yes")
        assert "The egress-only gateway out has its uplink from it" in asked
        gone = await told(shop, f"{table}/routes/remove", destination="::/0")
        assert "uplink</td>" not in gone

        group = await make("security-groups", name="web", vpc="shop")
        fields = {"direction": "inbound", "protocol": "tcp", "port_from": "443", "peer": "web"}
        ruled = await told(shop, f"{group}/rules", **fields)
        assert ":security-group/web</th>" in ruled
        assert ">443</td>" in ruled
        wrong = await refusal(shop, f"{group}/rules", 400, **{**fields, "peer": "10.0.0.1/8"})
        assert "bits behind its prefix" in wrong
        wrong = await refusal(shop, f"{group}/rules", 400, **{**fields, "port_from": "many"})
        assert wrong == "First port: a whole number."
        written = [
            html.unescape(each) for each in re.findall(r'name="rule" value="([^"]*)"', ruled)
        ]
        for each in written:
            ruled = await told(shop, f"{group}/rules/remove", rule=each)
        assert "no flow may begin" in ruled

        await told(shop, f"{egress}/delete", confirmed="yes")
        assert "attached to nothing" in await told(shop, f"{gateway}/detach", confirmed="yes")
        may = ("network:GetRouteTable", "network:GetSecurityGroup")
        async with shop.browser_that_may(*may) as browser:
            for path in (table, group):
                shown = (await browser.get(path)).text
                assert 'method="post" action="/console/services' not in shown
