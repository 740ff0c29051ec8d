"""Subscriptions confirmed by a pasted token or link: on the command line and on the console."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from queue import Queue
from typing import Any

from cloudcore.notifications.envelope import RecipientLinks
from cloudcore.notifications.subscriptions import SUBSCRIPTION_ROWS
from tests.entrepot import Home
from tests.integration.cli_world import cli_world
from tests.integration.console_shop import open_shop
from tests.integration.notifications_world import World

TOPICS = "/console/services/topics"


async def test_the_whole_link_confirms_as_its_token_does(notified: World) -> None:
    topic = await notified.topic()
    await notified.subscribe(topic)
    await notified.deliver()
    sent = notified.hook.of("subscription_confirmation")[-1].envelope
    link = sent["confirmation_url"]
    assert sent["token"] in link
    for other in ("", "https://", link.replace("token=", "other="), f"{link}x", link[:-1]):
        assert (await notified.confirm(other)).status_code == 400, other
    answer = await notified.confirm(f"  {link}\n")
    assert (answer.status_code, answer.json()["status"]) == (200, "confirmed")


def test_a_webhook_is_confirmed_by_the_command_without_a_sign_in(tmp_path: Path) -> None:
    posted: Queue[dict[str, Any]] = Queue()

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.put(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    hook = HTTPServer(("127.0.0.1", 0), Hook)
    url = f"http://127.0.0.1:{hook.server_port}"
    threading.Thread(target=hook.serve_forever, daemon=True).start()
    try:
        with cli_world(tmp_path / "world", ENTREPOT_WEBHOOK_ALLOWED=url) as world:
            world.done("topics", "create", "news")
            endpoint = ("--protocol", "http", "--endpoint", f"{url}/hook")
            world.done("subscriptions", "create", "news", *endpoint)
            sent = posted.get(timeout=60)
            nobody = Home(tmp_path / "nobody")
            confirm = ("subscriptions", "confirm", "--registry", world.install.url)
            refused = world.run(*confirm, "x" * 43, home=nobody)
            assert (refused.status, "confirms no subscription" in refused.err) == (1, True)
            done = world.run(*confirm, sent["confirmation_url"], home=nobody)
            assert (done.status, done.text) == (
                0,
                f"{url}/hook is confirmed: it gets what is published to news\n",
            )
            (shown,) = world.read("subscriptions", "list", "news")
            assert shown["status"] == "confirmed"
    finally:
        hook.shutdown()
        hook.server_close()


async def test_the_console_confirms_a_subscription_by_its_link_alone(tmp_path: Path) -> None:
    async with open_shop(tmp_path / "data") as shop:
        served, token = shop.served, shop.served.acme.program_token
        topic = await served.make("/v1/topics", {"name": "news"}, token=token)
        path = f"/v1/topics/{topic['id']}/subscriptions"
        body = {"protocol": "https", "endpoint": "https://192.0.32.7/hook"}
        made = (await served.ask("POST", path, body, token=token)).json()["subscription"]
        shown = (await shop.browser.get(f"{TOPICS}/{topic['id']}")).text
        assert f'<a href="{TOPICS}#confirm">Waits for its confirmation</a>' in shown
        fields = {"csrf": "csrf", "token": "no such token"}
        refused = await shop.browser.post(f"{TOPICS}/confirm", data=fields)
        assert (refused.status_code, "confirms no subscription" in refused.text) == (400, True)
        row = await served.database.read(SUBSCRIPTION_ROWS.find, served.acme.account_id, made["id"])
        assert row is not None
        links = RecipientLinks(served.keyring, "https://registry.test")
        fields["token"] = links.confirmation(links.token(row))
        done = await shop.browser.post(f"{TOPICS}/confirm", data=fields)
        assert "is confirmed" in (await shop.browser.get(done.headers["location"])).text
        shown = (await shop.browser.get(f"{TOPICS}/{topic['id']}")).text
        assert "Waits for its confirmation" not in shown
