"""Email templates: what is found in them, what is refused, preview and deletion."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from typing import Any

import httpx

from tests.databases import on_both_databases
from tests.integration.console_access import hidden
from tests.integration.console_shop import open_shop
from tests.integration.served_world import Served

PATH = "/v1/templates"
CONSOLE = "/console/services/templates"
WELCOME = {
    "name": "welcome",
    "subject": "Welcome, {{ name }}",
    "html": "<p>Hello {{ name }}{% for each in items %}, {{ each }}{% endfor %}</p>",
    "text": "Hello {{ name }}\n",
}


async def ask(served: Served, method: str, path: str = "", body: object = None) -> httpx.Response:
    return await served.ask(method, f"{PATH}{path}", body, token=served.acme.program_token)


async def create(served: Served, **body: object) -> dict[str, Any]:
    made = await ask(served, "POST", "", {**WELCOME, **body})
    assert made.status_code == 201, made.text
    found: dict[str, Any] = made.json()["template"]
    return found


def error_of(refused: httpx.Response) -> tuple[int, dict[str, Any]]:
    return refused.status_code, refused.json()["error"]["params"]


@on_both_databases
async def test_a_template_has_the_variables_of_its_sources(served: Served) -> None:
    made = await create(served)
    assert made["crn"].endswith(":template/welcome")
    assert made["variables"] == ["items", "name"]
    assert {*WELCOME, "description", "tags"} < made.keys()
    changed = await ask(served, "PATCH", f"/{made['id']}", {"html": None, "text": "{{ other }}"})
    assert changed.json()["template"]["variables"] == ["name", "other"]
    assert "html" not in changed.json()["template"]
    again = await ask(served, "POST", "", WELCOME)
    assert (again.status_code, again.json()["error"]["code"]) == (409, "CONFLICT")
    listed = (await ask(served, "GET", "?name=welcome")).json()["templates"]
    assert listed == [changed.json()["template"]]


async def test_what_is_no_template_is_refused_with_line_and_reason(served: Served) -> None:
    made = await create(served)
    for field in ("subject", "html", "text"):
        wrong = {field: "a\n{{ name"}
        expected = (400, {"field": field, "reason": "malformed", "line": 2})
        anew = await ask(served, "POST", "", {**WELCOME, "name": "b", **wrong})
        assert error_of(anew) == expected
        refused = await ask(served, "PATCH", f"/{made['id']}", wrong)
        assert error_of(refused) == expected
        assert refused.json()["error"]["message"].startswith(f"{field}: line 2: ")
    neither = {"html": None, "text": None}
    refused = await ask(served, "PATCH", f"/{made['id']}", neither)
    assert error_of(refused) == (400, {"field": "text", "reason": "missing"})
    assert error_of(await ask(served, "POST", "", {**WELCOME, **neither}))[0] == 400
    assert (await ask(served, "GET", f"/{made['id']}")).json()["template"] == made


async def test_deletion_answers_alike_for_unknown_foreign_and_deleted_ids(served: Served) -> None:
    made = await create(served)
    gone = f"/{made['id']}"
    foreign = await served.ask("DELETE", PATH + gone, token=served.globex.program_token)
    assert (foreign.status_code, foreign.content) == (204, b"")
    assert (await ask(served, "GET", gone)).status_code == 200
    for path in (gone, gone, "/00000000-0000-7000-8000-000000000000"):
        deleted = await ask(served, "DELETE", path)
        assert (deleted.status_code, deleted.content) == (204, b"")
    assert (await ask(served, "GET", gone)).status_code == 404
    malformed = await ask(served, "DELETE", "/welcome")
    assert error_of(malformed) == (400, {"field": "template_id", "reason": "malformed"})


async def preview(served: Served, template_id: str, **variables: object) -> httpx.Response:
    return await ask(served, "POST", f"/{template_id}/preview", {"variables": variables})


async def test_a_preview_is_what_a_message_would_say(served: Served) -> None:
    made = await create(served)
    shown = await preview(served, made["id"], name="<Ada>", items=["tea"])
    assert (shown.status_code, shown.json()["preview"]) == (
        200,
        {
            "subject": "Welcome, <Ada>",
            "html": "<p>Hello &lt;Ada&gt;, tea</p>",
            "text": "Hello <Ada>\n",
        },
    )
    missing = await preview(served, made["id"], name="Ada")
    params = {"field": "variables", "reason": "missing", "variable": "items"}
    assert error_of(missing) == (400, params)
    broken = await preview(served, made["id"], name="a\r\nBcc: eve@example.com", items=[])
    assert error_of(broken) == (400, {"field": "subject", "reason": "malformed"})
    plain = await create(served, name="plain", html=None, subject="Hi", text="Hi")
    assert (await preview(served, plain["id"])).json()["preview"] == {"subject": "Hi", "text": "Hi"}


async def test_the_console_shows_a_preview_in_a_frame_that_can_do_nothing(tmp_path: Path) -> None:
    async with open_shop(tmp_path / "data") as shop:
        browser = shop.browser
        page = (await browser.get(CONSOLE)).text
        html = "<p style='color:red'>Hi {{ name }}</p>\r\n<script>alert(1)</script>"
        fields = {"csrf": "csrf", "once": hidden(page, "once"), **WELCOME, "html": html}
        made = await browser.post(CONSOLE, data=fields)
        assert made.status_code == 303, made.text
        path = str(made.headers["location"]).partition("?")[0]
        assert "iframe" not in (await browser.get(path)).text
        sent = {"csrf": "csrf", "variables": '{"name": "Ada"}'}
        shown = await browser.post(f"{path}/preview", data=sent)
        assert shown.status_code == 200, shown.text
        assert "<h3>Welcome, Ada</h3>" in shown.text
        (frame,) = re.findall(r'<iframe [^>]* sandbox srcdoc="([^"]*)"></iframe>', shown.text)
        head, _, mail = unescape(frame).partition('">')
        assert head.endswith("default-src 'none'; style-src 'unsafe-inline'")
        assert mail.startswith("<p style='color:red'>Hi Ada</p>\n<script>")
        assert "<script>alert" not in shown.text
        policy = shown.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "style-src 'self' 'unsafe-inline'" in policy
        for variables, words in (("[", "a JSON object"), ("{}", "needs name")):
            refused = await browser.post(
                f"{path}/preview", data={"csrf": "csrf", "variables": variables}
            )
            assert (refused.status_code, words in refused.text) == (400, True)
        answer = await browser.post(f"{path}/delete", data={"csrf": "csrf", "confirmed": "yes"})
        assert (
            "The email template was deleted" in (await browser.get(answer.headers["location"])).text
        )
