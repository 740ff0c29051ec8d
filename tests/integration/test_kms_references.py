"""What a ``kms_key`` may be, and what each value is answered, for a binding and for use."""

from __future__ import annotations

from typing import Final

import pytest
from msgspec import UNSET

from cloudcore.db.base import Database
from cloudcore.errors import InvalidInput, NotFound, PlatformError
from cloudcore.kms.key import Key
from cloudcore.kms.rows import KEY_KIND, bindable_key
from cloudcore.resource_references import Scope, resolve
from cloudcore.web.bodies import reference_to
from tests.databases import on_both_databases
from tests.kms_world import ACME, GLOBEX, KmsWorld, make_kms_world

SCOPE: Final = Scope(ACME, "local")
UNKNOWN: Final = "01890000-0000-7000-8000-0000000000ff"
PREFIX: Final = f"crn:kms:local:{ACME}:key/"


@pytest.fixture
async def kms(database: Database) -> KmsWorld:
    """Return acme's keys in every state and spec, and one of globex."""
    world = await make_kms_world(database)
    await world.make("app")
    await world.make("theirs", GLOBEX)
    await world.disable(await world.make("off"))
    await world.schedule_deletion(await world.make("going"))
    await world.make("mac", spec="hmac-256", usage="generate_verify_mac")
    await world.make("signer", spec="ecdsa-p256", usage="sign_verify")
    return world


async def named(kms: KmsWorld, name: str, account_id: str = ACME) -> Key:
    scope = Scope(account_id, "local")
    return await kms.database.read(resolve, scope, KEY_KIND, "kms_key", name, None)


async def bind(kms: KmsWorld, value: str, scope: Scope = SCOPE) -> Key:
    return await kms.database.read(bindable_key, scope, value, lambda _crn: None)


async def refusal(kms: KmsWorld, value: str, scope: Scope = SCOPE) -> PlatformError:
    with pytest.raises(PlatformError) as raised:
        await bind(kms, value, scope)
    return raised.value


@on_both_databases
async def test_a_key_is_named_by_id_name_and_crn(kms: KmsWorld) -> None:
    key = await bind(kms, "app")
    for value in (
        key.id,
        key.id.upper(),
        f"{PREFIX}app",
        "crn:kms:local:acme:key/app",
        f"crn:kms:local:{ACME.upper()}:key/app",
    ):
        assert await bind(kms, value) == key
    assert key.crn == f"{PREFIX}app"


INVALID: Final = {
    "malformed": (
        *("", "App", "-app", "a" * 64, "a b", "app\n", "CRN:kms:local:acme:key/app"),
        *("arn:aws:kms:local:acme:key/app", "{" + UNKNOWN + "}"),
    ),
    "malformed_crn": (
        *("crn:", "crn:kms:local:key/app", "crn:kms:local:acme:extra:key/app"),
        *("crn:kms:local:acme:key/app:1", "crn:kms:local:acme:alias/app"),
        *("crn:kms:local:acme:key", "crn:kms:local:acme:key/", "crn:kms:local:acme:key/App"),
        *("crn:kms:local:acme:key/a/b", f"crn:kms:local:acme:key/{UNKNOWN}"),
        "crn:kms:local::key/app",
    ),
    "wrong_service": ("crn:storage:local:acme:key/app", "crn:iam::acme:key/app"),
    "foreign_region": tuple(
        f"crn:kms:{place}:key/app" for place in (":acme", "elsewhere:acme", "elsewhere:globex")
    ),
    "foreign_account": (
        *(f"crn:kms:local:{of}:key/theirs" for of in ("globex", GLOBEX)),
        f"crn:kms:local:{UNKNOWN}:key/app",
    ),
}


async def test_what_names_no_key_of_the_account_is_invalid(kms: KmsWorld) -> None:
    for reason, values in INVALID.items():
        for value in values:
            error = await refusal(kms, value)
            assert type(error) is InvalidInput, value
            assert error.params == {"field": "kms_key", "reason": reason}, value
            assert GLOBEX not in error.message


async def test_a_key_of_another_region_is_missing(kms: KmsWorld) -> None:
    key = await named(kms, "app")
    elsewhere = SCOPE._replace(region="elsewhere")
    for value in (key.id, "app"):
        assert isinstance(await refusal(kms, value, elsewhere), NotFound)


@on_both_databases
async def test_a_deleted_key_is_missing_and_its_name_is_another_key(kms: KmsWorld) -> None:
    before = await named(kms, "app")
    deleted = await kms.delete(before)
    for value in (before.id, "app", f"{PREFIX}app"):
        assert isinstance(await refusal(kms, value), NotFound)
    again = await kms.make("app")
    assert await bind(kms, "app") == again
    assert isinstance(await refusal(kms, before.id), NotFound)
    for key, crn, name in ((deleted, UNSET, UNSET), (again, f"{PREFIX}app", "app")):
        shown = reference_to(key)
        assert (shown.id, shown.crn, shown.name) == (key.id, crn, name)


UNFIT: Final[dict[str, str]] = {
    "off": "key_disabled",
    "going": "key_pending_deletion",
    "mac": "key_not_for_encryption",
    "signer": "key_not_symmetric",
    "pair": "key_not_symmetric",
}


async def test_what_cannot_encrypt_is_not_bound(kms: KmsWorld) -> None:
    await kms.make("pair", spec="rsa-2048")
    for name, reason in UNFIT.items():
        key = await named(kms, name)
        for value in (name, key.id, f"{PREFIX}{name}"):
            error = await refusal(kms, value)
            assert type(error) is InvalidInput, name
            assert error.params == {"field": "kms_key", "reason": reason}
