"""A real Postfix as smarthost gives mail back later, to the return path of each recipient."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from cloudcore.email.bounces.bounces import take_return_mail
from cloudcore.email.needs import ReturnMail
from registry.settings.email import EmailSettings
from tests.databases import planted
from tests.integration.sending_world import BOUNCES, free_port, open_world
from tests.jobs import until
from tests.postfix_relay import postfix_relay

DOMAIN = "mx.example.com"


@pytest.mark.client("postfix")
async def test_a_smarthost_bounces_one_recipient_and_delivers_to_the_other(tmp_path: Path) -> None:
    mx_port, return_port = free_port(), free_port()
    routes = {DOMAIN: mx_port, BOUNCES: return_port}
    with postfix_relay(routes, maximal_queue_lifetime="2s") as relay:
        settings = EmailSettings(
            email_sending="smarthost",
            bounce_domain=BOUNCES,
            email_dedicated_ips="198.51.100.1, 198.51.100.2",  # the shared tests have some
        )
        async with (
            AsyncExitStack() as resources,
            open_world(
                planted(tmp_path / "data"),
                "",
                email=settings,
                smtp_url=f"smtp://127.0.0.1:{relay.port}",
            ) as world,
        ):
            world.port = mx_port
            mx = await world.mail_server(DOMAIN, "127.0.0.1")
            mx.refusals = {
                f"gone@{DOMAIN}": "550 5.1.1 no such user here",
                f"full@{DOMAIN}": "452 4.2.2 mailbox full",
            }
            where = ReturnMail(BOUNCES, ("127.0.0.1", return_port))
            await take_return_mail(replace(world.served.email, return_mail=where), resources)
            to = [f"{name}@{DOMAIN}" for name in ("gone", "ada", "full")]
            made = await world.sent(to=to)
            await world.work()
            # The smarthost has taken it for all; what it finds out comes back by mail.
            taken = (await world.message(made))["recipients"]
            assert [each["attempts"] for each in taken] == [1, 1, 1]

            async def has_come_back() -> bool:
                shown = (await world.message(made))["recipients"]
                states = [each["status"] for each in shown]
                return states == ["bounced", "sent", "bounced"] and len(world.deliveries) > 0

            await until(has_come_back)
            reasons = [each.get("reason") for each in (await world.message(made))["recipients"]]
            assert reasons == ["550 5.1.1 no such user here", None, "452 4.2.2 mailbox full"]
            (delivery,) = world.deliveries
            assert delivery.recipients == [f"ada@{DOMAIN}"]
            answer = await world.served.ask("GET", "/v1/suppressions", token=world.token())
            of_this = {"id": made["id"], "crn": made["crn"]}
            found = answer.json()["suppressions"]
            caused = [each for each in found if each.get("source_message") == of_this]
            assert [(each["address"], each["reason"]) for each in caused] == [
                (f"gone@{DOMAIN}", "auto_bounce")
            ]
            again = await world.sent(to=to)
            states = [each["status"] for each in again["recipients"]]
            assert states == ["suppressed", "queued", "queued"]
