"""Assuming a role: permission and trust, both forms of its session, chains."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import httpx
import pytest
from sqlalchemy import bindparam, select

from cloudcore.clock import MICROSECONDS, uuid7
from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement
from cloudcore.identity.rights.assume_role import MAX_CHAIN, sealing_context
from cloudcore.identity.rows.accounts import Account
from cloudcore.identity.rows.roles import Role
from cloudcore.identity.rows.sessions import LiveSession, Session, find_live_session
from cloudcore.identity.rows.users import User
from cloudcore.identity.services.roles import create_role, delete_role, update_role
from cloudcore.identity.services.service_accounts import delete_service_account
from cloudcore.identity.tables import sessions
from tests.databases import on_both_databases
from tests.integration.oauth_world import Program, World, bearer, may
from tests.tenants import trust

EMAIL = "ann@example.com"
ASSUME = "iam:AssumeRole"


def crn_of(user: User) -> str:
    return f"crn:iam::{user.organization_id}:user/{user.id}"


def refusal(answer: httpx.Response) -> tuple[int, dict[str, Any], dict[str, str]]:
    """Return all of a refusal but its id: status, error and headers."""
    error = {k: v for k, v in answer.json()["error"].items() if k != "request_id"}
    headers = {k: v for k, v in answer.headers.items() if k not in ("x-request-id", "date")}
    return answer.status_code, error, headers


def message(answer: httpx.Response) -> str:
    return str(refusal(answer)[1]["message"])


async def deployer(world: World) -> tuple[Program, Role]:
    """Return a program of ``acme``, and a role there that it may assume."""
    acme = await world.add_account("acme")
    ci = await world.add_program(acme, "ci", may(ASSUME))
    return ci, await world.add_role(acme, "deploy", ci.crn)


@on_both_databases
async def test_a_session_has_two_forms_and_one_end(oauth: World) -> None:
    oauth.now += 123_456  # not on a second
    ci, role = await deployer(oauth)
    token = await oauth.token_of(ci)
    answer = await oauth.assume(token, role.id, duration_seconds=1800, session_name="build-7")
    assert answer.status_code == 200, answer.text
    assert answer.headers["cache-control"] == "no-store"
    made = answer.json()
    assert made.pop("token_type") == "Bearer"
    assert (made["account_id"], made["account_handle"]) == (ci.account.id, "acme")
    assert made["role_id"] == role.id
    who = (await oauth.who(made["access_token"])).json()
    assert (who["kind"], who["id"], who["account_id"]) == ("role_session", role.id, ci.account.id)
    assert who["crn"] == f"crn:iam::{ci.account.id}:role/deploy"
    end = who["expires_at"]
    assert end % MICROSECONDS == 0
    assert made["expires_at"] == "2027-01-15T08:30:00.000000Z"
    assert made["expires_in"] == 1800  # of whole seconds
    kept = await kept_session(oauth, who["sid"])
    assert kept.expires_at == end
    signing = await signing_credential(oauth, who["sid"])
    assert signing.access_key_id == made["access_key_id"]
    assert signing.session_name == "build-7"
    assert signing.source_crn == ci.crn
    opened = oauth.keyring.open(signing.secret_sealed or b"", sealing_context(who["sid"]))
    assert opened.decode() == made["secret_access_key"]
    assert made["session_token"] not in repr(signing)
    oauth.now = end - 1
    assert (await oauth.who(made["access_token"])).status_code == 200
    oauth.now = end
    assert (await oauth.who(made["access_token"])).status_code == 401
    assert await oauth.database.read(find_live_session, who["sid"], oauth.now) is None


async def kept_session(world: World, sid: str) -> LiveSession:
    found = await world.database.read(find_live_session, sid, world.now)
    assert found is not None
    return found


async def signing_credential(world: World, sid: str) -> Session:
    row = await world.database.read(lambda tx: tx.row(_SESSION, sid=sid))
    assert row is not None
    return Session(*row)


async def test_the_session_has_the_roles_rights_alone(oauth: World) -> None:
    """A right of the source only is refused, one of the role only is given."""
    acme = await oauth.add_account("acme")
    able = await oauth.add_program(acme, "able", may(ASSUME, "test:*"))
    unable = await oauth.add_program(acme, "unable", may(ASSUME))
    empty = await oauth.add_role(acme, "empty", able.crn)
    full = await oauth.add_role(acme, "full", unable.crn)
    await oauth.add_policy(acme, may("test:*"), role_id=full.id)
    for program, role, before, after in ((able, empty, 200, 403), (unable, full, 403, 200)):
        token = await oauth.token_of(program)
        assert await oauth.things(token) == before
        session = (await oauth.assume(token, role.id)).json()["access_token"]
        assert await oauth.things(session) == after


async def test_across_accounts_it_takes_permission_and_trust(oauth: World) -> None:
    """And each refusal is like that of a role that is not there."""
    acme, other = await oauth.add_account("acme"), await oauth.add_account("other")
    able = await oauth.add_program(acme, "able", may(ASSUME))
    unable = await oauth.add_program(acme, "unable", may("test:*"))
    denied = await oauth.add_program(
        acme, "denied", may(ASSUME), may(ASSUME, resource="crn:*:role/open", effect="deny")
    )
    trusting = await oauth.add_role(other, "open", acme.id)
    closed = await oauth.add_role(other, "closed", other.id)
    named = f"crn:iam::{other.id}:role/"
    absent = await oauth.assume(await oauth.token_of(able), named + "absent")
    assert refusal(absent)[0] == 403
    for program, role, status in (
        (able, trusting, 200),
        (able, closed, 403),
        (unable, trusting, 403),
        (unable, closed, 403),
        (denied, trusting, 403),
    ):
        token = await oauth.token_of(program)
        missing = await oauth.assume(token, named + "absent")
        assert refusal(missing) == refusal(absent), program.crn
        for name in (other.id, other.handle):
            answer = await oauth.assume(token, f"crn:iam::{name}:role/{role.name}")
            assert answer.status_code == status
            assert status == 200 or refusal(answer) == refusal(absent)
        answer = await oauth.assume(token, role.id)
        unknown = await oauth.assume(token, uuid7())
        if status == 200:
            assert answer.status_code == 200
        else:
            assert refusal(answer) == refusal(unknown)
    assert (await oauth.assume(await oauth.token_of(able), uuid7())).status_code == 404
    assert (await oauth.assume(await oauth.token_of(unable), uuid7())).status_code == 403


async def test_in_one_account_it_takes_both_too(oauth: World) -> None:
    acme = await oauth.add_account("acme")
    able = await oauth.add_program(acme, "able", may(ASSUME))
    unable = await oauth.add_program(acme, "unable", may("test:*"))
    for trusted, expected in (
        (acme.id, (200, 403)),
        (able.crn, (200, 403)),
        (unable.crn, (403, 403)),
    ):
        role = await oauth.add_role(acme, uuid7(), trusted)
        for program, status in zip((able, unable), expected, strict=True):
            token = await oauth.token_of(program)
            for text in (role.id, f"crn:iam::{acme.id}:role/{role.name}"):
                assert (await oauth.assume(token, text)).status_code == status
    token = await oauth.token_of(able)
    assert (await oauth.assume(token, "absent")).status_code == 404
    assert (await oauth.assume(token, f"crn:iam::{acme.id}:role/absent")).status_code == 404
    assert message(await oauth.assume(token, role.id)) == (
        "you may not assume this role: its trust policy does not allow it to you"
    )
    halfway = await oauth.add_program(
        acme, "halfway", may(ASSUME, resource="crn:iam::*:role/other")
    )
    half = await oauth.token_of(halfway)
    known, absent = [await oauth.assume(half, text) for text in (role.id, "absent")]
    assert refusal(known) == refusal(absent)
    assert message(known) == "you may not assume this role"
    # Who may assume nothing learns nothing of what there is.
    stuck = await oauth.token_of(unable)
    known, absent = [await oauth.assume(stuck, text) for text in (role.id, "absent")]
    assert refusal(known) == refusal(absent)
    assert absent.status_code == 403


async def test_an_assignment_is_a_persons_permission_never_the_trust(oauth: World) -> None:
    """A role takes both: that it is assigned to the person, and that it trusts the person."""
    acme, other = await oauth.add_account("acme"), await oauth.add_account("other")
    ann, bob = await oauth.add_user(EMAIL), await oauth.add_user("bob@example.com")
    both = await oauth.add_role(acme, "both", crn_of(ann))
    untrusting = await oauth.add_role(acme, "untrusting", acme.id, crn_of(bob))
    unassigned = await oauth.add_role(acme, "unassigned", crn_of(ann))
    for role in (both, untrusting):
        await oauth.assign(role, ann)
    await oauth.add_policy(acme, may("test:*"), role_id=both.id)
    token, _ = await oauth.signed_in(EMAIL)
    assert await oauth.things(token) == 403
    for text in (both.id, "both", f"crn:iam::{acme.id}:role/both", "crn:iam::acme:role/both"):
        answer = await oauth.assume(token, text)
        assert answer.status_code == 200, answer.text
        assert await oauth.things(answer.json()["access_token"]) == 200
    absent = await oauth.assume(token, f"crn:iam::{acme.id}:role/absent")
    for name in (acme.id, "acme"):
        named = await oauth.assume(token, f"crn:iam::{name}:role/unassigned")
        assert refusal(named) == refusal(absent)
    crns = [f"crn:iam::{name}:role/untrusting" for name in (acme.id, "acme")]
    for text in (untrusting.id, "untrusting", *crns):  # it sees that role among its own
        refused = await oauth.assume(token, text)
        assert refused.status_code == 403
        assert message(refused) == (
            "you may not assume this role: its trust policy does not allow it to you"
        )
    for text in (unassigned.id, unassigned.name):
        unknown = await oauth.assume(token, uuid7())
        assert refusal(await oauth.assume(token, text)) == refusal(unknown)
        assert (unknown.status_code, absent.status_code) == (404, 403)
    twin = await oauth.add_role(other, "both", crn_of(ann))
    await oauth.assign(twin, ann)
    answer = await oauth.assume(token, "both")
    assert refusal(answer)[1]["params"] == {"field": "role", "reason": "ambiguous"}
    stranger, _ = await oauth.signed_in("bob@example.com")
    assert (await oauth.assume(stranger, both.id)).status_code == 404


async def test_a_duration_is_clamped(oauth: World) -> None:
    """To 900 seconds at least, and to the most that the role allows."""
    ci, role = await deployer(oauth)
    token = await oauth.token_of(ci)
    short = await oauth.add_role(ci.account, "short", ci.crn, most=7200)
    for asked, of, given in (
        (None, role, 3600),
        (1, role, 900),
        (-5, role, 900),
        (99999, role, 43200),
        (10**30, role, 43200),
        (-(10**30), role, 900),
        (10**4000, short, 7200),
        (9000, short, 7200),
    ):
        fields = {} if asked is None else {"duration_seconds": asked}
        answer = await oauth.assume(token, of.id, **fields)
        assert answer.json()["expires_in"] == given, str(asked)[:12]


WRONG_FIELDS: Final[list[dict[str, object]]] = [
    {"duration_seconds": "900"},
    {"duration_seconds": 1.5},
    {"duration_seconds": 1e30},
    {"role": 10**30},
    {"session_name": 10**30},
    {"duration_seconds": True},
    {"session_name": "a"},
    {"session_name": "a b"},
    {"session_name": "ab\n"},
    {"session_name": 1},
    {"role": 1},
    {"role": ""},
    {"role": "crn:iam::acme:user/x"},
    {"role": "crn:iam:local:acme:role/x"},
    {"role": "crn:kms::acme:role/x"},
    {"role": "crn:x"},
    {"other": 1},
]


async def test_a_request_is_read_strictly(oauth: World) -> None:
    ci, role = await deployer(oauth)
    headers = bearer(await oauth.token_of(ci))
    for fields in WRONG_FIELDS:
        body = {"role": role.id} | fields
        answer = await oauth.request("POST", "/v1/assume-role", json=body, headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "INVALID_INPUT")


async def test_a_chain_is_bounded_and_never_lasts_longer(oauth: World) -> None:
    """A role that assumes itself gains neither time nor an endless line."""
    acme = await oauth.add_account("acme")
    ci = await oauth.add_program(acme, "ci", may(ASSUME))
    role = await oauth.add_role(acme, "self", ci.crn, f"crn:iam::{acme.id}:role/self")
    await oauth.add_policy(acme, may(ASSUME), role_id=role.id)
    first = (await oauth.assume(await oauth.token_of(ci), role.id, duration_seconds=43200)).json()
    assert first["expires_in"] == 43200
    second = (await oauth.assume(first["access_token"], role.id, duration_seconds=43200)).json()
    assert second["expires_in"] == 3600
    oauth.pass_time(1800)
    third = (await oauth.assume(second["access_token"], role.id, duration_seconds=3600)).json()
    assert third["expires_at"] == second["expires_at"]
    token = third["access_token"]
    for _ in range(MAX_CHAIN - 3):
        token = (await oauth.assume(token, role.id)).json()["access_token"]
    assert (await oauth.assume(token, role.id)).status_code == 403
    oauth.pass_time(1800)
    assert (await oauth.who(token)).status_code == 401
    assert (await oauth.who(first["access_token"])).status_code == 200


async def test_a_role_of_a_suspended_account_is_nobodys(oauth: World) -> None:
    acme, other = await oauth.add_account("acme"), await oauth.add_account("other")
    ci = await oauth.add_program(acme, "ci", may(ASSUME))
    role = await oauth.add_role(other, "deploy", acme.id)
    token = await oauth.token_of(ci)
    await oauth.add_policy(other, may(ASSUME), role_id=role.id)
    second = await oauth.add_role(acme, "second", f"crn:iam::{other.id}:role/deploy")
    session = (await oauth.assume(token, role.id)).json()["access_token"]
    chained = (await oauth.assume(session, second.id)).json()["access_token"]
    assert (await oauth.who(chained)).status_code == 200
    await oauth.run(f"UPDATE accounts SET status = 'suspended' WHERE id = '{other.id}'")
    assert (await oauth.assume(token, role.id)).status_code == 404
    for dead in (session, chained):
        assert (await oauth.who(dead)).status_code == 401


async def test_the_pair_of_a_session_is_no_client_of_the_token_endpoint(oauth: World) -> None:
    """The pair signs requests, once a family takes signatures; it gets no token."""
    ci, role = await deployer(oauth)
    made = (await oauth.assume(await oauth.token_of(ci), role.id)).json()
    answer = await oauth.token(
        {
            "grant_type": "client_credentials",
            "client_id": made["access_key_id"],
            "client_secret": made["secret_access_key"],
        }
    )
    assert (answer.status_code, answer.json()["error"]) == (401, "invalid_client")
    assert (await oauth.who(made["session_token"])).status_code == 401


_SESSION = Statement(
    select(*(sessions.c[name] for name in Session._fields)).where(sessions.c.id == bindparam("sid"))
)


@pytest.mark.parametrize("kind", ["program", "role session"])
async def test_who_takes_a_trusted_name_later_gains_nothing(oauth: World, kind: str) -> None:
    """A trust policy means who bore another account's names when it was written."""
    acme, other = await oauth.add_account("acme"), await oauth.add_account("other")

    async def come() -> tuple[str, Callable[[Connection], None]]:
        """Make the bearer of the name; return its token, and what makes it go."""
        program = await oauth.add_program(
            other, "ci" if kind == "program" else uuid7(), may(ASSUME)
        )
        if kind == "program":
            return await oauth.token_of(program), partial(
                delete_service_account, account_id=other.id, service_account_id=program.id
            )
        role = await oauth.add_role(other, "trusted", program.crn)
        await oauth.add_policy(other, may(ASSUME), role_id=role.id)
        session = await oauth.assume(await oauth.token_of(program), role.id)
        token: str = session.json()["access_token"]
        return token, partial(delete_role, account_id=other.id, role_id=role.id)

    name = "service-account/ci" if kind == "program" else "role/trusted"
    for handle in (other.id, "other"):
        crn = f"crn:iam::{handle}:{name}"
        before = await written_role(oauth, acme, f"before-{handle}", crn)
        token, go = await come()
        early = await oauth.assume(token, before.id)
        assert early.status_code == 404, "the name was nobody's when it was written"
        role = await written_role(oauth, acme, f"after-{handle}", crn)
        assert (await oauth.assume(token, role.id)).status_code == 200
        await oauth.database.write(go)
        token, go = await come()
        assert (await oauth.assume(token, role.id)).status_code == 404
        written = {"trust_policy": trust(crn)}
        await oauth.database.write(update_role, acme.id, role.id, written, oauth.now)
        assert (await oauth.assume(token, role.id)).status_code == 200
        await oauth.database.write(go)


async def written_role(world: World, account: Account, name: str, *trusted: str) -> Role:
    """Add a role as a caller does."""
    row = Role(uuid7(), account.id, name, "", "", 43200, world.now, world.now)
    return await world.database.write(create_role, row, trust(*trusted))
