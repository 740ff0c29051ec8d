"""VPCs on the console: the picture of what reaches what, its tables, and routes and rules."""

from __future__ import annotations

import html
import re
from functools import partial
from xml.etree import ElementTree as ET

from cloudcore.network.network_interfaces import Interfaces
from registry.console.pages.services.vpc_map import MOST_SUBNETS
from tests.integration.console_access import refusal, see, told
from tests.integration.console_shop import Shop

SERVICES = "/console/services"
SVG = "{http://www.w3.org/2000/svg}"


def picture_of(page: str) -> ET.Element:
    """Return the picture, which must be well-formed."""
    found = re.search(r'<svg class="map".*?</svg>', page, flags=re.DOTALL)
    assert found is not None
    return ET.fromstring(found[0].replace("<svg ", f'<svg xmlns="{SVG[1:-1]}" ', 1))


def titles(picture: ET.Element) -> list[str]:
    return [each.text or "" for each in picture.iter(f"{SVG}title")]


async def place(shop: Shop, subnet_id: str, group_id: str, number: int) -> None:
    acme = shop.served.acme
    owner = f"crn:compute:local:{acme.account_id}:instance/{number}"
    put, now = Interfaces().place, shop.served.clock()
    of = acme.account_id, "local", subnet_id, (group_id,), owner, now
    await shop.served.database.write(put, *of)


async def test_the_page_of_a_vpc_draws_it_and_says_the_same_in_tables(shop: Shop) -> None:
    make = partial(shop.served.make, token=shop.served.acme.program_token)
    vpc = await make("/v1/vpcs", {"name": "drawn", "cidr_ipv4": "10.7.0.0/16"})
    address = f"/console/services/vpcs/{vpc['id']}"
    empty = (await shop.browser.get(address)).text
    assert "It has no subnet yet." in empty
    assert 'class="map"' not in empty
    assert "<dt>CIDR IPv4</dt>" in empty
    groups = (await shop.browser.get("/console/services/security-groups?name=drawn-default")).text
    assert '<td data-label="Default">yes</td>' in groups
    assert '<td data-label="VPC">' in groups

    front = await make("/v1/subnets", {"name": "front", "vpc": "drawn", "cidr_ipv4": "10.7.1.0/24"})
    back = await make("/v1/subnets", {"name": "back", "vpc": "drawn", "cidr_ipv4": "10.7.2.0/24"})
    web = await make("/v1/security-groups", {"name": "web", "vpc": "drawn"})
    rules = [{"direction": "inbound", "protocol": "tcp", "port_from": 5432, "source": "web"}]
    data = await make("/v1/security-groups", {"name": "data", "vpc": "drawn", "rules": rules})
    await place(shop, front["id"], web["id"], 1)
    await place(shop, back["id"], data["id"], 2)

    page = (await shop.browser.get(address)).text
    picture = picture_of(page)
    assert picture.get("role") == "img"
    ids = {each.get("id") for each in picture.iter() if each.get("id")}
    assert set((picture.get("aria-labelledby") or "").split()) <= ids
    said = "front: web (1 interface) to back: data (1 interface): TCP 5432 over IPv4"
    assert [each for each in titles(picture) if "front: web" in each] == [said]
    assert titles(picture)[0] == "The VPC drawn"
    rows = re.findall(r"<tr>(.*?)</tr>", page, flags=re.DOTALL)
    cells = [re.sub(r"\s*<[^>]*>\s*", "|", each).strip("|\n") for each in rows]
    assert "front: web (1 interface)|back: data (1 interface)|TCP 5432 over IPv4" in [
        re.sub(r"\|+\n?\|*", "|", each) for each in cells
    ]
    assert page.count("No way") == 2
    assert page.count("Nothing can begin") == 2


async def test_a_large_vpc_is_drawn_in_part_and_its_table_has_all(shop: Shop) -> None:
    make = partial(shop.served.make, token=shop.served.acme.program_token)
    vpc = await make("/v1/vpcs", {"name": "large", "cidr_ipv4": "10.7.0.0/16"})
    for number in range(MOST_SUBNETS + 3):
        name, cidr = f"subnet-no-{number}-", f"10.7.{number}.0/24"
        await make("/v1/subnets", {"name": name, "vpc": "large", "cidr_ipv4": cidr})
    page = (await shop.browser.get(f"/console/services/vpcs/{vpc['id']}")).text
    picture = picture_of(page)
    drawn = [each.text for each in picture.iter(f"{SVG}text") if each.get("class") == "name"]
    assert len(drawn) == MOST_SUBNETS
    about = picture.find(f"{SVG}desc")
    assert about is not None
    assert "Not all of it is drawn" in (about.text or "")
    for number in range(MOST_SUBNETS + 3):
        assert re.search(rf'<th scope="row"[^>]*><a [^>]*>subnet-no-{number}-<', page)


async def test_who_may_not_read_vpcs_sees_no_picture(shop: Shop) -> None:
    make = partial(shop.served.make, token=shop.served.acme.program_token)
    vpc = await make("/v1/vpcs", {"name": "hidden", "cidr_ipv4": "10.7.0.0/16"})
    address = f"/console/services/vpcs/{vpc['id']}"
    async with shop.browser_that_may("network:ListVpcs") as browser:
        assert (await browser.get(address)).status_code == 403


async def test_a_person_opens_the_way_out_of_a_vpc(shop: Shop) -> None:
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

    group = await make("security-groups", name="gate", vpc="shop")
    fields = {"direction": "inbound", "protocol": "tcp", "port_from": "443", "peer": "gate"}
    ruled = await told(shop, f"{group}/rules", **fields)
    assert ":security-group/gate</th>" in ruled
    assert ">443</td>" in ruled
    wrong = await refusal(shop, f"{group}/rules", 400, **{**fields, "peer": "10.0.0.1/8"})
    assert "bits behind its prefix" in wrong
    wrong = await refusal(shop, f"{group}/rules", 400, **{**fields, "port_from": "many"})
    assert wrong == "First port: a whole number."
    written = [html.unescape(each) for each in re.findall(r'name="rule" value="([^"]*)"', ruled)]
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
