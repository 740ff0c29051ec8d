"""Queues on the console: created, shown with what they hold, purged and deleted."""

from __future__ import annotations

from pathlib import Path

from tests.integration.console_access import hidden
from tests.integration.console_shop import open_shop

QUEUES = "/console/services/queues"


async def test_a_queue_is_created_shown_purged_and_deleted(tmp_path: Path) -> None:
    async with open_shop(tmp_path / "data") as shop:
        browser, token = shop.browser, shop.served.acme.program_token
        page = (await browser.get(QUEUES)).text
        fields = {"csrf": "csrf", "once": hidden(page, "once"), "name": "jobs"}
        made = await browser.post(QUEUES, data=fields)
        assert made.status_code == 303, made.text
        path = str(made.headers["location"]).partition("?")[0]
        again = await browser.post(QUEUES, data=fields)
        assert again.headers["location"] == made.headers["location"]
        refused = await browser.post(QUEUES, data={**fields, "once": "", "name": "Upper"})
        assert (refused.status_code, "1 to 63 of" in refused.text) == (400, True)
        assert ">jobs</a>" in (await browser.get(QUEUES)).text
        messages = f"/v1/queues/{path.rpartition('/')[2]}/messages"
        sent = {"messages": [{"body": "a"}, {"body": "b"}, {"body": "c", "delay_seconds": 60}]}
        assert (await shop.served.ask("POST", messages, sent, token=token)).status_code == 201
        await shop.served.ask("POST", f"{messages}/lease", {}, token=token)
        shown = (await browser.get(path)).text
        assert "1 message can be leased, 1 leased, 1 delayed. The oldest came" in shown
        for act in ("purge", "delete"):
            asked = await browser.post(f"{path}/{act}", data={"csrf": "csrf"})
            assert (asked.status_code, f"{act.title()} jobs?" in asked.text) == (200, True)
        answer = await browser.post(f"{path}/purge", data={"csrf": "csrf", "confirmed": "yes"})
        assert "The queue was purged" in (await browser.get(answer.headers["location"])).text
        assert "0 messages can be leased, 0 leased, 0 delayed." in (await browser.get(path)).text
        answer = await browser.post(f"{path}/delete", data={"csrf": "csrf", "confirmed": "yes"})
        assert "There is no queue." not in (await browser.get(answer.headers["location"])).text
        assert (await browser.get(path)).status_code == 404


async def test_a_dead_letter_queue_is_not_deleted_and_says_why(tmp_path: Path) -> None:
    async with open_shop(tmp_path / "data") as shop:
        token = shop.served.acme.program_token
        dead = await shop.served.make("/v1/queues", {"name": "dead"}, token=token)
        redrive = {"dead_letter_queue": "dead", "max_leases": 3}
        body = {"name": "jobs", "redrive_policy": redrive}
        queue = await shop.served.make("/v1/queues", body, token=token)
        row = (await shop.browser.get(f"{QUEUES}?name=jobs")).text
        assert row.count(f'<a href="{QUEUES}/{dead["id"]}">dead</a>') == 1
        shown = (await shop.browser.get(f"{QUEUES}/{queue['id']}")).text
        assert "leased 3 times without an acknowledgement goes to" in shown
        fields = {"csrf": "csrf", "confirmed": "yes"}
        refused = await shop.browser.post(f"{QUEUES}/{dead['id']}/delete", data=fields)
        assert refused.status_code == 409
        assert "the dead letters of the queue jobs come here" in refused.text.lower()
