"""Assuming a role: permission and trust, both forms of its session, chains (S, I4, I9, I10)."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import httpx
import pytest
from sqlalchemy import bindparam, select

from cloudcore.clock import MICROSECONDS, uuid7
from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement
from cloudcore.identity.assume_role import MAX_LINE, sealing_context
from cloudcore.identity.rows.accounts import Account
from cloudcore.identity.rows.roles import Role
from cloudcore.identity.rows.sessions import LiveSession, Session, find_live_session
from cloudcore.identity.rows.users import User
from cloudcore.identity.services.roles import create_role, delete_role, update_role
from cloudcore.identity.services.service_accounts import delete_service_account
from cloudcore.identity.tables import sessions
from tests.integration.oauth_world import World, bearer, document, may, play

EMAIL = "ann@example.com"
ASSUME = "iam:AssumeRole"


def crn_of(user: User) -> str:
    return f"crn:iam::{user.organization_id}:user/{user.id}"


def refusal(answer: httpx.Response) -> tuple[int, dict[str, Any]]:
    """Return all of a refusal but its id."""
    error = answer.json()["error"]
    return answer.status_code, {k: v for k, v in error.items() if k != "request_id"}


def message(answer: httpx.Response) -> str:
    told: str = refusal(answer)[1]["message"]
    return told


def test_a_session_has_two_forms_and_one_end(database_url: str) -> None:
    """S6, rule I9."""

    async def scenario(world: World) -> None:
        world.now += 123_456  # not on a second
        acme = await world.add_account("acme")
        ci = await world.add_program(acme, "ci", may(ASSUME))
        role = await world.add_role(acme, "deploy", ci.crn)
        token = await world.token_of(ci)
        answer = await world.assume(token, role.id, duration_seconds=1800, session_name="build-7")
        assert answer.status_code == 200, answer.text
        assert answer.headers["cache-control"] == "no-store"
        made = answer.json()
        assert made.pop("token_type") == "Bearer"
        assert (made["account_id"], made["account_handle"]) == (acme.id, "acme")
        assert made["role_id"] == role.id
        who = (await world.who(made["access_token"])).json()
        assert (who["kind"], who["id"], who["account_id"]) == ("role_session", role.id, acme.id)
        assert who["crn"] == f"crn:iam::{acme.id}:role/deploy"
        end = who["expires_at"]
        assert end % MICROSECONDS == 0
        assert made["expires_at"] == "2027-01-15T08:30:00.000000Z"
        assert made["expires_in"] == 1800  # of whole seconds
        kept = await kept_session(world, who["sid"])
        assert kept.expires_at == end
        signing = await signing_credential(world, who["sid"])
        assert signing.access_key_id == made["access_key_id"]
        assert signing.session_name == "build-7"
        assert signing.source_crn == ci.crn
        opened = world.keyring.open(signing.secret_sealed or b"", sealing_context(who["sid"]))
        assert opened.decode() == made["secret_access_key"]
        assert made["session_token"] not in repr(signing)
        world.now = end - 1
        assert (await world.who(made["access_token"])).status_code == 200
        world.now = end
        assert (await world.who(made["access_token"])).status_code == 401
        assert await world.database.read(find_live_session, who["sid"], world.now) is None

    play(database_url, scenario)


async def kept_session(world: World, sid: str) -> LiveSession:
    found = await world.database.read(find_live_session, sid, world.now)
    assert found is not None
    return found


async def signing_credential(world: World, sid: str) -> Session:
    row = await world.database.read(lambda tx: tx.row(_SESSION, sid=sid))
    assert row is not None
    return Session(*row)


def test_the_session_has_the_roles_rights_alone(database_url: str) -> None:
    """Rule I9: a right of the source only is refused, one of the role only is given."""

    async def scenario(world: World) -> None:
        acme = await world.add_account("acme")
        able = await world.add_program(acme, "able", may(ASSUME, "test:*"))
        unable = await world.add_program(acme, "unable", may(ASSUME))
        empty = await world.add_role(acme, "empty", able.crn)
        full = await world.add_role(acme, "full", unable.crn)
        await world.add_policy(acme, may("test:*"), role_id=full.id)
        for program, role, before, after in ((able, empty, 200, 403), (unable, full, 403, 200)):
            token = await world.token_of(program)
            assert await world.things(token) == before
            session = (await world.assume(token, role.id)).json()["access_token"]
            assert await world.things(session) == after

    play(database_url, scenario)


def test_across_accounts_it_takes_permission_and_trust(database_url: str) -> None:
    """S1, S2, S3, rule I10: and each refusal is like that of a role that is not there."""

    async def scenario(world: World) -> None:
        acme, other = await world.add_account("acme"), await world.add_account("other")
        able = await world.add_program(acme, "able", may(ASSUME))
        unable = await world.add_program(acme, "unable", may("test:*"))
        denied = await world.add_program(
            acme, "denied", may(ASSUME), may(ASSUME, resource="crn:*:role/open", effect="deny")
        )
        trusting = await world.add_role(other, "open", acme.id)
        closed = await world.add_role(other, "closed", other.id)
        named = f"crn:iam::{other.id}:role/"
        absent = await world.assume(await world.token_of(able), named + "absent")
        assert refusal(absent)[0] == 403
        for program, role, status in (
            (able, trusting, 200),
            (able, closed, 403),
            (unable, trusting, 403),
            (unable, closed, 403),
            (denied, trusting, 403),
        ):
            token = await world.token_of(program)
            for name in (other.id, other.handle):
                answer = await world.assume(token, f"crn:iam::{name}:role/{role.name}")
                assert answer.status_code == status
                assert status == 200 or refusal(answer) == refusal(absent)
            answer = await world.assume(token, role.id)
            unknown = await world.assume(token, uuid7())
            if status == 200:
                assert answer.status_code == 200
            else:
                assert refusal(answer) == refusal(unknown)
        assert (await world.assume(await world.token_of(able), uuid7())).status_code == 404
        assert (await world.assume(await world.token_of(unable), uuid7())).status_code == 403

    play(database_url, scenario)


def test_in_one_account_it_takes_both_too(database_url: str) -> None:
    async def scenario(world: World) -> None:
        acme = await world.add_account("acme")
        able = await world.add_program(acme, "able", may(ASSUME))
        unable = await world.add_program(acme, "unable", may("test:*"))
        for trusted, expected in (
            (acme.id, (200, 403)),
            (able.crn, (200, 403)),
            (unable.crn, (403, 403)),
        ):
            role = await world.add_role(acme, uuid7(), trusted)
            for program, status in zip((able, unable), expected, strict=True):
                token = await world.token_of(program)
                for text in (role.id, f"crn:iam::{acme.id}:role/{role.name}"):
                    assert (await world.assume(token, text)).status_code == status
        token = await world.token_of(able)
        assert (await world.assume(token, "absent")).status_code == 404
        assert (await world.assume(token, f"crn:iam::{acme.id}:role/absent")).status_code == 404
        assert message(await world.assume(token, role.id)) == (
            "you may not assume this role: its trust policy does not allow it to you"
        )
        halfway = await world.add_program(
            acme, "halfway", may(ASSUME, resource="crn:iam::*:role/other")
        )
        half = await world.token_of(halfway)
        assert message(await world.assume(half, role.id)).endswith(
            "does not allow it to you, nor do your policies"
        )
        # Who may assume nothing learns nothing of what there is.
        stuck = await world.token_of(unable)
        known, absent = [await world.assume(stuck, text) for text in (role.id, "absent")]
        assert refusal(known) == refusal(absent)
        assert absent.status_code == 403

    play(database_url, scenario)


def test_to_a_person_the_assignment_is_the_permission_and_never_the_trust(
    database_url: str,
) -> None:
    """Rules I10 and I11, S8."""

    async def scenario(world: World) -> None:
        acme, other = await world.add_account("acme"), await world.add_account("other")
        ann, bob = await world.add_user(EMAIL), await world.add_user("bob@example.com")
        both = await world.add_role(acme, "both", crn_of(ann))
        untrusting = await world.add_role(acme, "untrusting", acme.id, crn_of(bob))
        unassigned = await world.add_role(acme, "unassigned", crn_of(ann))
        for role in (both, untrusting):
            await world.assign(role, ann)
        await world.add_policy(acme, may("test:*"), role_id=both.id)
        token, _ = await world.signed_in(EMAIL)
        assert await world.things(token) == 403
        for text in (both.id, "both", f"crn:iam::{acme.id}:role/both", "crn:iam::acme:role/both"):
            answer = await world.assume(token, text)
            assert answer.status_code == 200, answer.text
            assert await world.things(answer.json()["access_token"]) == 200
        absent = await world.assume(token, f"crn:iam::{acme.id}:role/absent")
        for name in (acme.id, "acme"):
            named = await world.assume(token, f"crn:iam::{name}:role/unassigned")
            assert refusal(named) == refusal(absent)
        crns = [f"crn:iam::{name}:role/untrusting" for name in (acme.id, "acme")]
        for text in (untrusting.id, "untrusting", *crns):  # it sees that role among its own
            refused = await world.assume(token, text)
            assert refused.status_code == 403
            assert message(refused) == (
                "you may not assume this role: its trust policy does not allow it to you"
            )
        for text in (unassigned.id, unassigned.name):
            unknown = await world.assume(token, uuid7())
            assert refusal(await world.assume(token, text)) == refusal(unknown)
            assert (unknown.status_code, absent.status_code) == (404, 403)
        twin = await world.add_role(other, "both", crn_of(ann))
        await world.assign(twin, ann)
        answer = await world.assume(token, "both")
        assert refusal(answer)[1]["params"] == {"field": "role", "reason": "ambiguous"}
        stranger, _ = await world.signed_in("bob@example.com")
        assert (await world.assume(stranger, both.id)).status_code == 404

    play(database_url, scenario)


@pytest.mark.parametrize(
    ("asked", "most", "given"),
    [
        (None, 43200, 3600),
        (1, 43200, 900),
        (-5, 43200, 900),
        (99999, 43200, 43200),
        (10**30, 43200, 43200),
        (-(10**30), 43200, 900),
        (10**4000, 7200, 7200),
        (7200, 3600, 3600),
    ],
    ids=lambda value: str(value)[:12],
)
def test_a_duration_is_clamped(
    sqlite_database: str, asked: int | None, most: int, given: int
) -> None:
    """Rule I4."""

    async def scenario(world: World) -> None:
        acme = await world.add_account("acme")
        ci = await world.add_program(acme, "ci", may(ASSUME))
        role = await world.add_role(acme, "deploy", ci.crn, most=most)
        fields = {} if asked is None else {"duration_seconds": asked}
        answer = await world.assume(await world.token_of(ci), role.id, **fields)
        assert answer.json()["expires_in"] == given

    play(sqlite_database, scenario)


@pytest.mark.parametrize(
    "fields",
    [
        {"duration_seconds": "900"},
        {"duration_seconds": 1.5},
        {"duration_seconds": 1e30},
        {"role": 10**30},
        {"session_name": 10**30},
        {"duration_seconds": True},
        {"session_name": "a"},
        {"session_name": "a b"},
        {"session_name": 1},
        {"role": 1},
        {"role": ""},
        {"role": "crn:iam::acme:user/x"},
        {"role": "crn:iam:local:acme:role/x"},
        {"role": "crn:kms::acme:role/x"},
        {"role": "crn:x"},
        {"other": 1},
    ],
    ids=str,
)
def test_a_request_is_read_strictly(sqlite_database: str, fields: dict[str, object]) -> None:
    async def scenario(world: World) -> None:
        acme = await world.add_account("acme")
        ci = await world.add_program(acme, "ci", may(ASSUME))
        role = await world.add_role(acme, "deploy", ci.crn)
        body = {"role": role.id} | fields
        headers = bearer(await world.token_of(ci))
        answer = await world.request("POST", "/v1/assume-role", json=body, headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "INVALID_INPUT")

    play(sqlite_database, scenario)


def test_a_chain_is_bounded_and_never_lasts_longer(database_url: str) -> None:
    """S9: a role that assumes itself gains neither time nor an endless line."""

    async def scenario(world: World) -> None:
        acme = await world.add_account("acme")
        ci = await world.add_program(acme, "ci", may(ASSUME))
        role = await world.add_role(acme, "self", ci.crn, f"crn:iam::{acme.id}:role/self")
        await world.add_policy(acme, may(ASSUME), role_id=role.id)
        first = (
            await world.assume(await world.token_of(ci), role.id, duration_seconds=43200)
        ).json()
        assert first["expires_in"] == 43200
        second = (await world.assume(first["access_token"], role.id, duration_seconds=43200)).json()
        assert second["expires_in"] == 3600
        world.pass_time(1800)
        third = (await world.assume(second["access_token"], role.id, duration_seconds=3600)).json()
        assert third["expires_at"] == second["expires_at"]
        token = third["access_token"]
        for _ in range(MAX_LINE - 3):
            token = (await world.assume(token, role.id)).json()["access_token"]
        assert (await world.assume(token, role.id)).status_code == 403
        world.pass_time(1800)
        assert (await world.who(token)).status_code == 401
        assert (await world.who(first["access_token"])).status_code == 200

    play(database_url, scenario)


def test_a_role_of_a_suspended_account_is_nobodys(database_url: str) -> None:
    async def scenario(world: World) -> None:
        acme, other = await world.add_account("acme"), await world.add_account("other")
        ci = await world.add_program(acme, "ci", may(ASSUME))
        role = await world.add_role(other, "deploy", acme.id)
        token = await world.token_of(ci)
        session = (await world.assume(token, role.id)).json()["access_token"]
        await world.run(f"UPDATE accounts SET status = 'suspended' WHERE id = '{other.id}'")
        assert (await world.assume(token, role.id)).status_code == 404
        assert (await world.who(session)).status_code == 401

    play(database_url, scenario)


def test_the_pair_of_a_session_is_no_client_of_the_token_endpoint(database_url: str) -> None:
    """Rule I12's other half waits for the storage family: its pair signs there."""

    async def scenario(world: World) -> None:
        acme = await world.add_account("acme")
        ci = await world.add_program(acme, "ci", may(ASSUME))
        role = await world.add_role(acme, "deploy", ci.crn)
        made = (await world.assume(await world.token_of(ci), role.id)).json()
        answer = await world.token(
            {
                "grant_type": "client_credentials",
                "client_id": made["access_key_id"],
                "client_secret": made["secret_access_key"],
            }
        )
        assert (answer.status_code, answer.json()["error"]) == (401, "invalid_client")
        assert (await world.who(made["session_token"])).status_code == 401

    play(database_url, scenario)


def test_nobody_assumes_without_a_token(sqlite_database: str) -> None:
    async def scenario(world: World) -> None:
        answer = await world.request("POST", "/v1/assume-role", json={"role": uuid7()})
        assert answer.status_code == 401

    play(sqlite_database, scenario)


_SESSION = Statement(
    select(*(sessions.c[name] for name in Session._fields)).where(sessions.c.id == bindparam("sid"))
)


@pytest.mark.parametrize("kind", ["program", "role session"])
def test_who_takes_a_trusted_name_later_gains_nothing(database_url: str, kind: str) -> None:
    """A trust policy means who bore another account's names when it was written."""

    async def scenario(world: World) -> None:
        acme, other = await world.add_account("acme"), await world.add_account("other")

        async def come() -> tuple[str, Callable[[Connection], None]]:
            """Make the bearer of the name; return its token, and what makes it go."""
            program = await world.add_program(
                other, "ci" if kind == "program" else uuid7(), may(ASSUME)
            )
            if kind == "program":
                return await world.token_of(program), partial(
                    delete_service_account, account_id=other.id, service_account_id=program.id
                )
            role = await world.add_role(other, "trusted", program.crn)
            await world.add_policy(other, may(ASSUME), role_id=role.id)
            session = await world.assume(await world.token_of(program), role.id)
            token: str = session.json()["access_token"]
            return token, partial(delete_role, account_id=other.id, role_id=role.id)

        name = "service-account/ci" if kind == "program" else "role/trusted"
        for handle in (other.id, "other"):
            crn = f"crn:iam::{handle}:{name}"
            before = await written_role(world, acme, f"before-{handle}", crn)
            token, go = await come()
            early = await world.assume(token, before.id)
            assert early.status_code == 404, "the name was nobody's when it was written"
            role = await written_role(world, acme, f"after-{handle}", crn)
            assert (await world.assume(token, role.id)).status_code == 200
            await world.database.write(go)
            token, go = await come()
            assert (await world.assume(token, role.id)).status_code == 404
            written = {"trust_policy": trust(crn)}
            await world.database.write(update_role, acme.id, role.id, written, world.now)
            assert (await world.assume(token, role.id)).status_code == 200
            await world.database.write(go)

    play(database_url, scenario)


def trust(*principals: str) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(document({"effect": "allow", "principals": [*principals]}))
    return said


async def written_role(world: World, account: Account, name: str, *trusted: str) -> Role:
    """Add a role as a caller does."""
    row = Role(uuid7(), account.id, name, "", "", 43200, world.now, world.now)
    return await world.database.write(create_role, row, trust(*trusted))
