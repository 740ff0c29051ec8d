"""Certificates on the console: requested, uploaded, shown with what they lack, and revoked."""

from __future__ import annotations

import re
from pathlib import Path

from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import load_der_x509_csr

from cloudcore.certificate.family import CERTIFICATE
from cloudcore.certificate.keys import new_private_key
from cloudcore.key_pairs import signing_request
from tests.certificates import uploaded
from tests.integration.console_access import hidden
from tests.integration.console_shop import open_shop
from tests.jobs import run_due

CERTIFICATES = "/console/services/certificates"


async def test_a_certificate_is_requested_and_its_page_says_what_to_publish(tmp_path: Path) -> None:
    async with open_shop(tmp_path / "data", certificate_zone="cloud.test") as shop:
        page = (await shop.browser.get(CERTIFICATES)).text
        fields = {"csrf": "csrf", "once": hidden(page, "once"), "name": "web"}
        fields["domains"] = "www.example.com\r\nwww.granted.test"
        made = await shop.browser.post(CERTIFICATES, data=fields)
        assert made.status_code == 303, made.text
        path = str(made.headers["location"]).partition("?")[0]
        shown = (await shop.browser.get(path)).text
        assert "Waits for DNS" in shown
        assert "_acme-challenge.www.example.com." in shown
        assert f"{path.rpartition('/')[2]}.acme.cloud.test." in shown
        assert "None is needed" in shown
        asked = await shop.browser.post(f"{path}/recheck", data={"csrf": "csrf"})
        assert "being looked at" in (await shop.browser.get(asked.headers["location"])).text
        refused = await shop.browser.post(
            f"{path}/revoke", data={"csrf": "csrf", "confirmed": "yes"}
        )
        assert (refused.status_code, "none was issued" in refused.text) == (409, True)
        again = await shop.browser.post(CERTIFICATES, data={**fields, "once": "", "domains": "a"})
        assert (again.status_code, "is no domain such as" in again.text) == (400, True)


async def test_one_is_uploaded_without_showing_its_key_and_revoked_and_deleted(
    tmp_path: Path,
) -> None:
    async with open_shop(tmp_path / "data") as shop:
        browser = shop.browser
        page = (await browser.get(CERTIFICATES)).text
        pems = uploaded("www.example.com", shop.served.clock())
        fields = {"csrf": "csrf", "once": hidden(page, "once"), "upload_name": "Up", **pems}
        refused = await browser.post(f"{CERTIFICATES}/upload", data=fields)
        assert refused.status_code == 400
        assert pems["certificate_pem"].splitlines()[1] in refused.text
        assert pems["private_key_pem"].splitlines()[1] not in refused.text
        whole = pems["private_key_pem"] + pems["certificate_pem"]
        for field in ("certificate_pem", "chain_pem"):  # both in one file, as some tools write them
            refused = await browser.post(
                f"{CERTIFICATES}/upload", data=fields | {"once": "", field: whole}
            )
            assert refused.status_code == 400
            assert pems["private_key_pem"].splitlines()[1] not in refused.text
        fields |= {"upload_name": "up", "once": ""}
        refused = await browser.post(f"{CERTIFICATES}/upload", data=fields | {"chain_pem": "x"})
        assert "Chain pem: " in refused.text
        made = await browser.post(f"{CERTIFICATES}/upload", data=fields)
        assert made.status_code == 303, made.text
        path = str(made.headers["location"]).partition("?")[0]
        shown = (await browser.get(path)).text
        assert "Active" in shown
        until = r"<time [^>]+>in \d+ (days|months)</time>"
        assert re.search(f"It expires {until}", shown)
        assert re.search(until, (await browser.get(CERTIFICATES)).text)
        for act in ("revoke", "delete"):
            asked = await browser.post(f"{path}/{act}", data={"csrf": "csrf"})
            assert (asked.status_code, f"{act.title()} up?" in asked.text) == (200, True)
        confirmed = {"csrf": "csrf", "confirmed": "yes"}
        await browser.post(f"{path}/revoke", data=confirmed)
        assert "Revoked" in (await browser.get(path)).text
        gone = await browser.post(f"{path}/delete", data=confirmed)
        assert "was deleted" in (await browser.get(gone.headers["location"])).text
        assert (await browser.get(path)).status_code == 404


async def test_a_key_made_here_is_shown_once_and_that_of_a_signing_request_never(
    tmp_path: Path,
) -> None:
    async with open_shop(tmp_path / "data") as shop:
        browser, served = shop.browser, shop.served
        page = (await browser.get(CERTIFICATES)).text
        fields = {"csrf": "csrf", "once": hidden(page, "once"), "name": "web"}
        made = await browser.post(CERTIFICATES, data=fields | {"domains": "www.granted.test"})
        path = str(made.headers["location"]).partition("?")[0]
        key = new_private_key("ecdsa-p256")
        request = load_der_x509_csr(signing_request(key, ["csr.granted.test"]))
        csr = request.public_bytes(Encoding.PEM).decode()
        made = await browser.post(
            CERTIFICATES, data=fields | {"once": "", "name": "own", "csr_pem": csr}
        )
        own = str(made.headers["location"]).partition("?")[0]
        await run_due(
            served.database, list(CERTIFICATE.runtime.job_kinds(served.certificates)), served.clock
        )
        shown = (await browser.get(own)).text
        assert "which its owner has" in shown
        assert "Export" not in shown
        assert "Export its private key" in (await browser.get(path)).text
        asked = await browser.post(f"{path}/export", data={"csrf": "csrf"})
        assert "Export the key of web?" in asked.text
        confirmed = {"csrf": "csrf", "confirmed": "yes", "once": hidden(asked.text, "once")}
        given = await browser.post(f"{path}/export", data=confirmed)
        assert (given.status_code, "BEGIN PRIVATE KEY" in given.text) == (200, True)
        assert given.headers["cache-control"] == "no-store"
        again = await browser.post(f"{path}/export", data=confirmed | {"once": ""})
        assert (again.status_code, "was given before" in again.text) == (409, True)
        assert "of which a copy was given" in (await browser.get(path)).text
