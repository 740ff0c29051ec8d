"""Certificates on the console: requested, uploaded, shown with what they lack, and revoked."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import httpx
import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import load_der_x509_csr

from cloudcore.certificate.family import CERTIFICATE
from cloudcore.key_pairs import new_private_key, signing_request
from tests.certificates import uploaded
from tests.integration.console_access import hidden, see, send, told
from tests.integration.console_shop import Shop, open_shop
from tests.jobs import run_due

CERTIFICATES = "/console/services/certificates"


@pytest.fixture(scope="module")
async def shop(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shop]:
    """Return a console whose install can prove domains by a zone of its own."""
    folder = tmp_path_factory.mktemp("certificates")
    async with open_shop(folder / "data", certificate_zone="cloud.test") as shop:
        yield shop


def address_of(made: httpx.Response) -> str:
    """Return the page of what a form has made."""
    assert made.status_code == 303, made.text
    return str(made.headers["location"]).partition("?")[0]


async def test_a_certificate_is_requested_and_its_page_says_what_to_publish(shop: Shop) -> None:
    once = hidden(await see(shop, CERTIFICATES), "once")
    fields = {"name": "first", "domains": "www.example.com\r\nwww.granted.test"}
    path = address_of(await send(shop, CERTIFICATES, once=once, **fields))
    shown = await see(shop, path)
    name = f"{path.rpartition('/')[2]}.acme.cloud.test."
    for words in ("Waits for DNS", "_acme-challenge.www.example.com.", name, "None is needed"):
        assert words in shown
    assert "being looked at" in await told(shop, f"{path}/recheck")
    refused = await send(shop, f"{path}/revoke", confirmed="yes")
    assert (refused.status_code, "none was issued" in refused.text) == (409, True)
    again = await send(shop, CERTIFICATES, once="", name="first", domains="a")
    assert (again.status_code, "is no domain such as" in again.text) == (400, True)
    await told(shop, f"{path}/delete", confirmed="yes")  # or other tests would ask the DNS for it


async def test_one_is_uploaded_without_showing_its_key_and_revoked_and_deleted(shop: Shop) -> None:
    upload = f"{CERTIFICATES}/upload"
    once = hidden(await see(shop, CERTIFICATES), "once")
    pems = uploaded("www.example.com", shop.served.clock())
    line = pems["private_key_pem"].splitlines()[1]
    refused = await send(shop, upload, once=once, upload_name="Up", **pems)
    assert refused.status_code == 400
    assert pems["certificate_pem"].splitlines()[1] in refused.text
    assert line not in refused.text
    whole = pems["private_key_pem"] + pems["certificate_pem"]
    for field in ("certificate_pem", "chain_pem"):  # both in one file, as some tools write them
        refused = await send(shop, upload, once="", upload_name="Up", **pems | {field: whole})
        assert (refused.status_code, line in refused.text) == (400, False)
    refused = await send(shop, upload, once="", upload_name="up", **pems | {"chain_pem": "x"})
    assert "Chain pem: " in refused.text
    path = address_of(await send(shop, upload, once="", upload_name="up", **pems))
    shown = await see(shop, path)
    assert "Active" in shown
    until = r"<time [^>]+>in \d+ (days|months)</time>"
    assert re.search(f"It expires {until}", shown)
    rows = re.findall(r"(?s)<tr>(.*?)</tr>", await see(shop, CERTIFICATES))
    (row,) = [each for each in rows if path in each]
    assert re.search(until, row)
    for act in ("revoke", "delete"):
        asked = await send(shop, f"{path}/{act}")
        assert (asked.status_code, f"{act.title()} up?" in asked.text) == (200, True)
    await send(shop, f"{path}/revoke", confirmed="yes")
    assert "Revoked" in await see(shop, path)
    assert "was deleted" in await told(shop, f"{path}/delete", confirmed="yes")
    await see(shop, path, 404)


async def test_a_key_made_here_is_shown_once_and_that_of_a_signing_request_never(
    shop: Shop,
) -> None:
    served = shop.served
    once = hidden(await see(shop, CERTIFICATES), "once")
    fields = {"name": "web", "domains": "www.granted.test"}
    path = address_of(await send(shop, CERTIFICATES, once=once, **fields))
    key = new_private_key("ecdsa-p256")
    request = load_der_x509_csr(signing_request(key, ["csr.granted.test"]))
    csr = request.public_bytes(Encoding.PEM).decode()
    own = address_of(await send(shop, CERTIFICATES, once="", name="own", csr_pem=csr))
    kinds = list(CERTIFICATE.runtime.job_kinds(served.certificates))
    await run_due(served.database, kinds, served.clock)
    shown = await see(shop, own)
    assert "which its owner has" in shown
    assert "Export" not in shown
    assert "Export its private key" in await see(shop, path)
    asked = await send(shop, f"{path}/export")
    assert "Export the key of web?" in asked.text
    once = hidden(asked.text, "once")
    given = await send(shop, f"{path}/export", confirmed="yes", once=once)
    assert (given.status_code, "BEGIN PRIVATE KEY" in given.text) == (200, True)
    assert given.headers["cache-control"] == "no-store"
    again = await send(shop, f"{path}/export", confirmed="yes", once="")
    assert (again.status_code, "was given before" in again.text) == (409, True)
    assert "of which a copy was given" in await see(shop, path)
