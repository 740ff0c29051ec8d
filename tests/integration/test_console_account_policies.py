"""The policies of an account in the console: the editor, its list, and errors at their line."""

from __future__ import annotations

import json
import re

from registry.console.addresses import POLICIES
from registry.console.pages.access.policies import line_of, matches
from tests.integration.console_access import hidden, read, refusal, see, send, told
from tests.integration.console_shop import Shop

_NEW = f"{POLICIES}/new"


def written(*actions: str) -> str:
    statement = {"effect": "allow", "actions": list(actions), "resources": ["*"]}
    return json.dumps({"version": "1", "statements": [statement]}, indent=2)


def test_a_search_has_all_words_in_any_case() -> None:
    assert matches("PULL image", "registry:PullImage")
    assert not matches("pull role", "registry:PullImage")
    assert matches("", "anything")


def test_an_error_is_at_the_line_of_its_value() -> None:
    assert line_of("b", '{\n "a",\n "b"}') == 3
    assert line_of("c", '{"a"}') == 0


async def test_a_policy_is_written_corrected_changed_and_deleted(shop: Shop) -> None:
    wrong = {"name": "hand-made", "document": written("registry:PullImage", "registry:PushImge")}
    complaint = await refusal(shop, _NEW, 400, **wrong)
    line = wrong["document"].splitlines().index('        "registry:PushImge"') + 1
    assert complaint.startswith(f"Line {line}: ")
    assert "registry:PushImage" in complaint
    again = await send(shop, _NEW, **wrong)
    assert "registry:PushImge&#34;" in again.text
    assert 'aria-invalid="true"' in again.text
    assert "no JSON object" in await refusal(shop, _NEW, 400, name="a", document="[")
    assert "Version" in await refusal(shop, _NEW, 400, name="a", document="{}")

    made = await told(shop, _NEW, name="hand-made", document=written("registry:PullImage"))
    assert "The policy was created." in made
    found = re.search(rf'href="({POLICIES}/[^"]*)">hand-made<', await see(shop, POLICIES))
    assert found
    page = found[1]
    assert "registry:PullImage" in await see(shop, page)
    await refusal(shop, page, 400, document=written("registry:Nothing"))
    changed = await told(shop, page, document=written("registry:PushImage"), description="Push")
    assert "Revision 2," in changed
    policy = (await read(shop, f"/v1{page.removeprefix('/console')}"))["policy"]
    assert policy["document"]["statements"][0]["actions"] == ["registry:PushImage"]
    assert "Delete hand-made?" in (await send(shop, f"{page}/delete")).text
    assert ">hand-made<" not in await told(shop, f"{page}/delete", confirmed="yes")
    await see(shop, page, 404)


async def test_a_document_that_was_saved_meanwhile_is_not_overwritten(shop: Shop) -> None:
    await told(shop, _NEW, name="shared", document=written("registry:PullImage"))
    found = re.search(rf'href="({POLICIES}/[^"]*)">shared<', await see(shop, POLICIES))
    assert found
    page = found[1]
    drawn = hidden(await see(shop, page), "revision")
    await told(shop, page, document=written("registry:DescribeImages"), revision=drawn)
    mine = {"document": written("registry:PushImage")}
    complaint = await refusal(shop, page, 409, **mine, revision=drawn)
    assert complaint.startswith("This has changed since you opened the page")
    refused = (await send(shop, page, **mine, revision=drawn)).text
    assert "registry:PushImage" in refused
    assert "registry:DescribeImages" in refused.partition("What is saved now")[2]
    await told(shop, page, **mine, revision=hidden(refused, "revision"))
    policy = (await read(shop, f"/v1{page.removeprefix('/console')}"))["policy"]
    assert policy["document"]["statements"][0]["actions"] == ["registry:PushImage"]


async def test_a_ready_made_policy_is_filled_with_names(shop: Shop) -> None:
    await refusal(shop, _NEW, 400, name="readers", template="reader", names="")
    await told(shop, _NEW, name="readers", template="reader", names="web/* api", document="")
    (policy,) = [
        each for each in (await read(shop, "/v1/policies"))["policies"] if each["name"] == "readers"
    ]
    assert "repository/api" in str(policy["document"])


async def test_the_list_of_actions_is_searched_and_keeps_what_was_written(shop: Shop) -> None:
    whole = await see(shop, _NEW)
    assert "iam:CreateRole" in whole
    assert "repository/&lt;name&gt;" in whole
    found = await send(shop, _NEW, search="yes", find="pull image", document='{"kept": 1}')
    assert found.status_code == 200
    assert "registry:PullImage</code>" in found.text
    assert "iam:CreateRole</code>" not in found.text
    assert "{&#34;kept&#34;: 1}" in found.text
    assert "registry:PullImage</code>" in await see(shop, f"{_NEW}?find=pull")


async def test_an_attached_policy_is_not_deleted(shop: Shop) -> None:
    token = shop.served.acme.program_token
    program = await shop.served.make("/v1/service-accounts", {"name": "bound"}, token=token)
    body = {"name": "held", "template": {"name": "reader", "names": ["*"]}}
    policy = await shop.served.make("/v1/policies", body, token=token)
    path = f"/v1/policies/{policy['id']}/attachments"
    await shop.served.make(path, {"service_account": program["id"]}, token=token)
    page = f"{POLICIES}/{policy['id']}"
    assert f'href="/console/service-accounts/{program["id"]}">bound<' in await see(shop, page)
    await refusal(shop, f"{page}/delete", 409, confirmed="yes")
