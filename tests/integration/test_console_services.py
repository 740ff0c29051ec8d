"""Services on the console: nouns, buckets, senders of mail, load balancers, pools and VPCs."""

from __future__ import annotations

import html
import re
from pathlib import Path
from urllib.parse import quote, urlencode
from xml.etree import ElementTree as ET

import pytest
from msgspec import structs

from cloudcore.db.base import Connection
from cloudcore.email.resources import SendingIdentity
from cloudcore.email.sender_rows import IDENTITY_ROWS
from cloudcore.jobs.faults import Fault
from cloudcore.loadbalancer import rows as balancer_rows
from cloudcore.loadbalancer.load_balancer import TargetState
from cloudcore.network.network_interfaces import Interfaces
from cloudcore.nodes.output import NEWER
from cloudcore.resources.resource import Record, Resource
from registry.composition.families import FAMILIES
from registry.console.menu import nouns_of
from registry.console.nouns.resources import noun_of
from registry.console.pages.services.vpc_map import MOST_SUBNETS
from registry.settings.node import NodeSettings
from tests import described
from tests.integration.console_access import hidden, see, send, told
from tests.integration.console_shop import Shop, browser_with, open_shop

QUEUES = "/console/services/queues"


@pytest.mark.parametrize(
    "kind",
    [each for each in described.RESOURCES if "create" in each.methods],
    ids=lambda kind: kind.one,
)
async def test_each_kind_is_created_by_its_form_and_listed(
    shop: Shop, kind: Resource[Record]
) -> None:
    (noun,) = [each for each in nouns_of(FAMILIES) if each.one == kind.one]
    sample = kind.sampled(described.NEW)
    fields = {
        name: "\n".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        for name, value in sample.items()
    }
    made = await told(shop, noun.path, **fields)
    name = html.escape(str(sample[kind.label]))
    assert f"<h1>{name}</h1>" in made
    # Other tests may have made more than a page of the kind.
    only = urlencode({kind.label: sample[kind.label]})
    assert f">{name}</a>" in await see(shop, f"{noun.path}?{only}")


async def test_a_list_is_turned_forth_and_back(shop: Shop) -> None:
    for number in range(120):
        await shop.make("/v1/queues", {"name": f"q{number:03}"})
    row = re.compile(rf'href="{QUEUES}/[^"]*">(q\d+)<')
    pages, path = [], f"{QUEUES}?sort=-name"
    while True:
        text = await see(shop, path)
        pages.append((path, row.findall(text)))
        following = re.search(r'rel="next" href="([^"]*)"', text)
        if following is None:
            break
        path = html.unescape(following[1])
    assert sorted(name for _, names in pages for name in names) == [
        f"q{number:03}" for number in range(120)
    ]
    assert len(pages) == 3
    assert all(names == sorted(names, reverse=True) for _, names in pages), "of the page, and kept"
    for _, names in reversed(pages[:-1]):
        previous = re.search(r'rel="prev" href="([^"]*)"', text)
        assert previous, text
        text = await see(shop, html.unescape(previous[1]))
        assert row.findall(text) == names
    assert 'rel="prev"' not in text
    assert "Order on this page" in text


def test_what_goes_wrong_is_shown_beside_the_details_and_not_among_them() -> None:
    """A list of faults is no value of one line, which would break the page."""
    for each in described.RESOURCES:
        assert "faults" not in [column.field for column in noun_of(each).details], each.one


BUCKETS = "/console/services/buckets"


async def test_a_bucket_is_created_shown_emptied_and_deleted(shop: Shop) -> None:
    browser, token = shop.browser, shop.served.acme.program_token
    page = (await browser.get(BUCKETS)).text
    fields = {"csrf": "csrf", "once": hidden(page, "once"), "name": "photos"}
    made = await browser.post(BUCKETS, data=fields)
    assert made.status_code == 303, made.text
    assert str(made.headers["location"]).partition("?")[0] == f"{BUCKETS}/photos"
    again = await browser.post(BUCKETS, data=fields)
    assert again.headers["location"] == made.headers["location"]
    refused = await browser.post(BUCKETS, data={**fields, "once": "", "name": "Upper"})
    assert (refused.status_code, "3 to 63 of" in refused.text) == (400, True)
    path = f"{BUCKETS}/photos"
    assert "There is no object." in (await browser.get(path)).text
    for key in ("top", "2026/<cat>.jpg", "2026/07/dog.jpg", *(f"n{n:02}" for n in range(60))):
        put = f"/v1/buckets/photos/objects/{quote(key, safe='')}"
        assert (await shop.served.ask("PUT", put, b"bytes", token=token)).status_code == 200
    assert ">photos</a>" in (await browser.get(BUCKETS)).text
    shown = (await browser.get(path)).text
    assert "63 objects, 315 B." in shown
    assert f'href="{path}?prefix=2026%2F">2026/</a>' in shown
    assert ">top</a></th>" not in shown, "it is on the next page"
    following = shown.partition('rel="next" href="')[2].partition('"')[0]
    assert ">top</a></th>" in (await browser.get(following.replace("&amp;", "&"))).text
    folder = (await browser.get(f"{path}?prefix=2026%2F")).text
    assert "2026/&lt;cat&gt;.jpg</a></th>" in folder
    assert f'href="{path}?prefix=2026%2F07%2F"' in folder
    assert f'<a href="{path}">The folder above</a>' in folder
    one = {"csrf": "csrf", "key": "2026/<cat>.jpg"}
    asked = await browser.post(f"{path}/delete-object", data=one)
    assert 'Delete <span class="wraps">2026/&lt;cat&gt;.jpg</span>?' in asked.text
    answer = await browser.post(f"{path}/delete-object", data={**one, "confirmed": "yes"})
    assert answer.headers["location"].partition("&")[0] == f"{path}?prefix=2026%2F"
    assert "cat" not in (await browser.get(f"{path}?prefix=2026%2F")).text
    asked = await send(shop, f"{path}/delete")
    assert "It has 62 objects: delete them first." in asked.text
    refused = await send(shop, f"{path}/delete", confirmed="yes")
    assert refused.status_code == 409
    assert "bucket has objects; delete them first" in refused.text
    await shop.make("/v1/buckets", {"name": "spare"})
    gone = await told(shop, f"{BUCKETS}/spare/delete", confirmed="yes")
    assert "The bucket was deleted." in gone
    assert (await browser.get(f"{BUCKETS}/spare")).status_code == 404


async def test_files_go_up_and_down_with_the_rights_of_the_role(shop: Shop) -> None:
    browser = shop.browser
    await shop.make("/v1/buckets", {"name": "files"})
    path, data = f"{BUCKETS}/files", bytes(range(256)) * 1000
    page = await browser.get(path)
    assert "data-upload" in page.text
    assert page.headers["content-security-policy"].endswith("; connect-src 'self'")
    assert "connect-src" not in (await browser.get(BUCKETS)).headers["content-security-policy"]
    query = "key=a%2Fb%20%C3%A9.html"
    up, down = f"{path}/upload?{query}", f"{path}/download?{query}"
    own = {"x-csrf": "csrf", "content-type": "text/html"}
    for headers in ({}, {"x-csrf": "other"}, {**own, "origin": "http://evil.example"}):
        assert (await browser.put(up, content=data, headers=headers)).status_code == 403
    assert (await browser.get(down)).status_code == 404
    put = await browser.put(up, content=data, headers=own)
    assert (put.status_code, put.json()["object"]["size"]) == (200, len(data))
    got = await browser.get(down)
    assert (got.status_code, got.content) == (200, data)
    assert got.headers["content-disposition"] == "attachment; filename*=UTF-8''b%20%C3%A9.html"
    assert got.headers["content-security-policy"].startswith("sandbox;")
    got = await browser.get(down, headers={"range": "bytes=1-2"})
    assert (got.status_code, got.content) == (206, data[1:3])
    refused = await browser.put(f"{path}/upload?key={'k' * 1025}", content=b"", headers=own)
    assert refused.json()["error"]["params"]["field"] == "key"


async def test_an_upload_without_a_session_is_refused_in_words_and_a_download_is_not_cached(
    shop: Shop,
) -> None:
    await shop.make("/v1/buckets", {"name": "kept-files"})
    path = f"{BUCKETS}/kept-files"
    put = {"cache-control": "public, max-age=9", "expires": "Thu, 01 Dec 2033 16:00:00 GMT"}
    token = shop.served.acme.program_token
    stored = await shop.served.ask(
        "PUT", "/v1/buckets/kept-files/objects/a", b"data", token=token, headers=put
    )
    assert stored.status_code == 200, stored.text
    for method in ("GET", "HEAD"):
        got = await shop.browser.request(method, f"{path}/download?key=a")
        assert (got.status_code, got.headers["content-length"]) == (200, "4")
        assert got.headers.get_list("cache-control") == ["no-store"]
        assert "expires" not in got.headers
    async with browser_with(shop.served, shop.app, token) as browser:
        browser.cookies.clear()
        own = {"x-csrf": "csrf"}
        refused = await browser.put(f"{path}/upload?key=a", content=b"new", headers=own)
    assert refused.status_code == 401, "a script would follow a redirect, and find a page"
    assert "session has ended" in refused.json()["error"]["message"]


IDENTITIES = "/console/services/identities"
BALANCERS = "/console/services/load-balancers"


async def change(shop: Shop, identity_id: str, **fields: object) -> None:
    """Change the row of an identity, as its work would."""

    def changed(tx: Connection) -> SendingIdentity:
        found = IDENTITY_ROWS.lock(tx, shop.served.acme.account_id, identity_id)
        return IDENTITY_ROWS.save(tx, structs.replace(found, **fields))

    await shop.served.database.write(changed)


async def test_the_page_of_a_domain_has_its_records_and_what_is_wrong(shop: Shop) -> None:
    made = await shop.make("/v1/identities", {"kind": "domain", "value": "shop.example"})
    address, record = f"{IDENTITIES}/{made['id']}", made["dkim"]
    fault = Fault("DKIM_RECORD_MISSING", "publish it", 1, 1, 1)
    await change(shop, made["id"], faults=(fault,), checked_at=1)
    page = await see(shop, address)
    for text in (record["record_name"], record["record_value"], "_dmarc.shop.example"):
        assert f"<code>{text}</code>" in page
    assert "publish it" in page
    assert "Confirm the address" not in page
    assert "being looked for" in await told(shop, f"{address}/verify")


async def test_the_page_of_an_address_says_what_it_waits_for(shop: Shop) -> None:
    made = await shop.make("/v1/identities", {"kind": "address", "value": "ada@shop.example"})
    address = f"{IDENTITIES}/{made['id']}"
    page = await see(shop, address)
    assert "Publish these records" not in page
    for words in ("Confirm the address", f"{made['id']}/verify"):
        assert words in page
    await change(shop, made["id"], status="verified", verified_at=1)
    page = await see(shop, address)
    for words in ("Confirm the address", f"{made['id']}/verify"):
        assert words not in page


async def test_a_load_balancer_is_shown_changed_and_torn_down(shop: Shop) -> None:
    acme, held = shop.served.acme.account_id, shop.served.acme.ids["/v1/load-balancers/{}"]
    path = f"{BALANCERS}/{held}"
    for page, words in (
        (BALANCERS, (">held</a>", "Is being made")),
        (path, ("Is being made at 192.0.2.", "0 of 2 proxies run on", "No connections can go")),
    ):
        shown = await see(shop, page)
        assert [each for each in words if each not in shown] == []

    def look(tx: Connection) -> None:
        found = balancer_rows.ROWS.lock(tx, acme, held)
        one = TargetState("held", "x", 80, address="10.0.0.9", state="unhealthy")
        seen = (one, structs.replace(one, id="y", instance_id=held))
        balancer_rows.ROWS.save(tx, structs.replace(found, status="active", targets=seen))

    await shop.served.database.write(look)
    shown = await see(shop, path)
    assert "Serves at 192.0.2." in shown
    assert '<span class="mark has">unhealthy</span>' in shown
    fields = {"replica_count": "3", "description": "The front", "tags": ""}
    assert (await send(shop, path, **fields)).status_code == 303
    assert "0 of 3 proxies" in await see(shop, path)
    assert "Nothing is reached at 192.0.2." in (await send(shop, f"{path}/delete")).text
    await told(shop, f"{path}/delete", confirmed="yes")
    assert "Is being torn down at 192.0.2." in await see(shop, path)


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
    vpc = await shop.make("/v1/vpcs", {"name": "drawn", "cidr_ipv4": "10.7.0.0/16"})
    address = f"/console/services/vpcs/{vpc['id']}"
    empty = (await shop.browser.get(address)).text
    assert "It has no subnet yet." in empty
    assert 'class="map"' not in empty
    assert "<dt>CIDR IPv4</dt>" in empty
    groups = (await shop.browser.get("/console/services/security-groups?name=drawn-default")).text
    assert '<td data-label="Default">yes</td>' in groups
    assert '<td data-label="VPC">' in groups

    front = await shop.make(
        "/v1/subnets", {"name": "front", "vpc": "drawn", "cidr_ipv4": "10.7.1.0/24"}
    )
    back = await shop.make(
        "/v1/subnets", {"name": "back", "vpc": "drawn", "cidr_ipv4": "10.7.2.0/24"}
    )
    web = await shop.make("/v1/security-groups", {"name": "web", "vpc": "drawn"})
    rules = [{"direction": "inbound", "protocol": "tcp", "port_from": 5432, "source": "web"}]
    data = await shop.make("/v1/security-groups", {"name": "data", "vpc": "drawn", "rules": rules})
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
    vpc = await shop.make("/v1/vpcs", {"name": "large", "cidr_ipv4": "10.7.0.0/16"})
    for number in range(MOST_SUBNETS + 3):
        name, cidr = f"subnet-no-{number}-", f"10.7.{number}.0/24"
        await shop.make("/v1/subnets", {"name": name, "vpc": "large", "cidr_ipv4": cidr})
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
    vpc = await shop.make("/v1/vpcs", {"name": "hidden", "cidr_ipv4": "10.7.0.0/16"})
    address = f"/console/services/vpcs/{vpc['id']}"
    async with shop.browser_that_may("network:ListVpcs") as browser:
        assert (await browser.get(address)).status_code == 403
