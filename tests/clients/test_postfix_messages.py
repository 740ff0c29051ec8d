"""A real Postfix as the mail server of a domain: it sees each dedicated IP, and what is signed."""

from __future__ import annotations

import asyncio
import re
from functools import partial
from pathlib import Path

import dkim
import pytest
from aiosmtpd.smtp import SMTP

from registry.settings.email import EmailSettings
from tests.databases import planted
from tests.integration.sending_world import (
    HOST_NAME,
    MailServer,
    free_port,
    look_up,
    open_world,
)
from tests.jobs import until
from tests.postfix_relay import postfix_relay

DOMAIN = "mx.example.com"
INVENTORY = tuple(f"127.0.0.{number}" for number in range(11, 15))
"""Each tenant has one already."""


@pytest.mark.client("postfix")
async def test_a_mail_server_sees_the_dedicated_ips_of_the_pool_and_others_the_shared_one(
    tmp_path: Path,
) -> None:
    store_port = free_port()
    with postfix_relay({DOMAIN: store_port}) as relay:
        settings = EmailSettings(
            email_sending="direct",
            email_host_name=HOST_NAME,
            email_allowed="127.0.0.0/8",
            email_port=relay.port,
            email_dedicated_ips=",".join(INVENTORY),
        )
        async with open_world(planted(tmp_path / "data"), "", email=settings) as world:
            store = MailServer("127.0.0.1", world.deliveries)
            loop = asyncio.get_running_loop()
            world.listening.append(
                await loop.create_server(lambda: SMTP(store), "127.0.0.1", store_port)
            )
            world.names.records[f"{DOMAIN}.", "MX"] = [f"10 mx.{DOMAIN}."]
            world.names.records[f"mx.{DOMAIN}.", "A"] = ["127.0.0.1"]
            served, token = world.served, world.token()
            pool = await served.make("/v1/ip-pools", {"name": "letters"}, token=token)
            ours = {
                (await served.make("/v1/dedicated-ips", {"ip_pool": pool["id"]}, token=token))[
                    "address"
                ]
                for _ in range(2)
            }
            identity = await world.verified("letters.example.com")
            changed = await world.ask("PATCH", f"/{identity['id']}", {"ip_pool": "letters"})
            assert changed.status_code == 200, changed.text
            to = [f"{name}@{DOMAIN}" for name in ("ada", "bob", "eve", "dan")]
            letters = await world.sent("news@letters.example.com", to=to)
            other = await world.sent(to=[f"shared@{DOMAIN}"])
            await world.work()
            for each in (letters, other):
                assert (await world.message(each))["status"] == "sent"

            async def have_come() -> bool:
                return len(world.deliveries) == len(to) + 1

            await until(have_come)
            seen = {}
            for got in world.deliveries:
                assert dkim.verify(got.content, dnsfunc=partial(look_up, world))
                received = str(got.mail["Received"])
                found = re.search(r"from (\S+) \(.*\[(127[0-9.]+)\]\)", received)
                assert found is not None, received
                assert found[1] == HOST_NAME
                seen[got.recipients[0]] = found[2]
            told = (await world.message(letters))["recipients"]
            assert {each["address"]: each["source_ip"] for each in told} == {
                each: seen[each] for each in to
            }
            assert {seen[each] for each in to} == ours
            assert seen[f"shared@{DOMAIN}"] not in INVENTORY
