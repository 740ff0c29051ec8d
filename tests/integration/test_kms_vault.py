"""Data keys open under the key, the account and the context they were wrapped for, and no other."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable
from typing import Final, NamedTuple

import pytest

from cloudcore.clock import uuid7
from cloudcore.db.base import Database
from cloudcore.errors import Conflict, NotFound, Unavailable
from cloudcore.keyring import Keyring
from cloudcore.kms import services, vault
from cloudcore.kms.key import Key
from cloudcore.kms.providers import EmbeddedProvider, Providers, VersionRef
from cloudcore.kms.rows import KEY_KIND, find_platform_key, list_accounts_without_platform_key
from cloudcore.kms.services import KeyMaker
from cloudcore.kms.vault import MAX_AGE_SECONDS, OVERHEAD, CiphertextInvalid, Vault, Wrapped
from cloudcore.resource_references import Scope, resolve
from tests.databases import on_both_databases
from tests.kms_world import ACME, GLOBEX, KEYRING, KmsWorld, make_kms_world
from tests.soak import FACTOR, IS_SOAK, time_limit, times

STEPS: Final = 200
AADS: Final = (b"", b"object 1", b"object 2", b"1:object")
DATA_KEY: Final = bytes(range(32))


class CountingProvider(EmbeddedProvider):
    """Counts what it unwraps, and can be gone."""

    def __init__(self) -> None:
        super().__init__(KEYRING)
        self.unwrapped = 0
        self.is_gone = False
        self.is_asked = asyncio.Event()

    async def unwrap(self, wrapped: bytes, ref: VersionRef) -> bytes:
        """Return the material of a version."""
        self.is_asked.set()
        await asyncio.sleep(0)
        if self.is_gone:
            raise Unavailable("gone")
        self.unwrapped += 1
        return await super().unwrap(wrapped, ref)


@pytest.fixture
async def provider() -> CountingProvider:
    return CountingProvider()


@pytest.fixture
async def kms(database: Database, provider: CountingProvider) -> KmsWorld:
    return await make_kms_world(database, Providers(provider))


class Wrap(NamedTuple):
    """A data key that was wrapped, and how."""

    key: Key
    data_key: bytes
    aad: bytes
    wrapped: bytes


class Machine:
    """Random uses of random keys by two processes, against what is known of them."""

    def __init__(self, kms: KmsWorld, chance: random.Random) -> None:
        self.kms = kms
        self.chance = chance
        self.vaults = [kms.vault, Vault(kms.database, kms.providers, kms.clock)]
        self.keys: list[Key] = []
        self.wraps: list[Wrap] = []
        self.outcomes: dict[str, int] = {}

    def current(self, key: Key) -> Key:
        return next(each for each in self.keys if each.id == key.id)

    def keep(self, key: Key) -> None:
        self.keys = [each if each.id != key.id else key for each in self.keys]

    async def change(self) -> None:
        key, kms = self.chance.choice(self.keys), self.kms
        if key.state == "deleted" or self.chance.random() < 0.2:
            owner = self.chance.choice((ACME, GLOBEX))
            self.keys.append(await kms.make(f"key-{len(self.keys)}", owner))
        elif key.state == "pending_deletion":
            cancel = services.cancel_deletion
            self.keep(await kms.database.write(cancel, key, kms.clock()))
        elif key.state == "disabled":
            if self.chance.random() < 0.3:
                self.keep(await kms.delete(key))
            else:
                self.keep(await kms.enable(key))
        else:
            commands = [kms.rotate, kms.rotate, kms.disable, kms.schedule_deletion]
            self.keep(await self.chance.choice(commands)(key))

    async def wrap(self) -> None:
        key, aad = self.chance.choice(self.keys), self.chance.choice(AADS)
        data_key = self.chance.randbytes(32)
        used = self.chance.choice(self.vaults)
        wrapping = used.wrap(key.account_id, key.id, data_key, aad)
        if key.state == "enabled":
            wrapped = await wrapping
            assert len(wrapped) == len(data_key) + OVERHEAD
            assert data_key not in wrapped
            self.wraps.append(Wrap(key, data_key, aad, wrapped))
        else:
            await expect_refusal(key, wrapping)

    async def unwrap(self) -> None:
        wrap = self.chance.choice(self.wraps)
        key = self.current(wrap.key)
        unwrapping = self.chance.choice(self.vaults).unwrap(
            key.account_id, key.id, wrap.wrapped, wrap.aad
        )
        if key.state == "enabled":
            assert await unwrapping == wrap.data_key
        else:
            await expect_refusal(key, unwrapping)

    async def misuse(self) -> None:
        wrap = self.chance.choice(self.wraps)
        account_id, key_id = wrap.key.account_id, wrap.key.id
        wrapped, aad = wrap.wrapped, wrap.aad
        kind = self.chance.choice(["account", "key", "aad", "bit", "end", "version"])
        if kind == "account":
            account_id = GLOBEX if account_id == ACME else ACME
        elif kind == "key":
            key_id = self.chance.choice([key.id for key in self.keys if key.id != key_id])
        elif kind == "aad":
            aad = self.chance.choice([each for each in AADS if each != aad])
        elif kind == "bit":
            at = self.chance.randrange(len(wrapped) * 8)
            flipped = wrapped[at // 8] ^ 1 << at % 8
            wrapped = wrapped[: at // 8] + bytes([flipped]) + wrapped[at // 8 + 1 :]
        elif kind == "end":
            wrapped = wrapped[: self.chance.randrange(len(wrapped))]
        else:
            version = self.current(wrap.key).current_version
            other = version if wrapped[4] != version else version + 1
            wrapped = wrapped[:4] + bytes([other]) + wrapped[5:]
        with pytest.raises((CiphertextInvalid, NotFound, Conflict)) as raised:
            await self.chance.choice(self.vaults).unwrap(account_id, key_id, wrapped, aad)
        name = f"{kind} {type(raised.value).__name__}"
        self.outcomes[name] = self.outcomes.get(name, 0) + 1


async def expect_refusal(key: Key, use: Awaitable[bytes]) -> None:
    """Await the use of a key that is not enabled."""
    with pytest.raises(NotFound if key.state == "deleted" else Conflict):
        await use


@time_limit(120)
async def test_a_data_key_opens_only_as_it_was_wrapped(kms: KmsWorld) -> None:
    """Wrong account, key, context, bytes or version: nothing; disabled or deleted: refused."""
    seed = random.SystemRandom().randrange(2**32) if IS_SOAK else 12
    machine = Machine(kms, random.Random(seed))
    for account_id in (ACME, GLOBEX, ACME):
        machine.keys.append(await kms.make(f"key-{len(machine.keys)}", account_id))
    for _ in range(5):
        await machine.wrap()
    commands = [machine.wrap, machine.unwrap, machine.unwrap, machine.misuse, machine.change]
    for _ in range(times(STEPS)):
        await machine.chance.choice(commands)()
    if FACTOR >= 1:
        kinds = {name.partition(" ")[0] for name in machine.outcomes}
        assert kinds == {"account", "key", "aad", "bit", "end", "version"}, (seed, machine.outcomes)
        assert machine.outcomes["aad CiphertextInvalid"] > 1
        assert {key.state for key in machine.keys} >= {"enabled", "deleted"}


@on_both_databases
async def test_many_data_keys_are_wrapped_and_unwrapped_at_once(kms: KmsWorld) -> None:
    keys = [await kms.make(name) for name in ("one", "two")]
    data_keys = [(os.urandom(32), f"object {number}".encode()) for number in range(9)]
    wraps = []
    for key in (keys[0], keys[1], await kms.rotate(keys[0])):
        made = await kms.vault.wrap_all(ACME, key.id, data_keys)
        pairs = zip(made, data_keys, strict=True)
        wraps += [Wrapped(key.id, wrapped, aad) for wrapped, (_, aad) in pairs]
    opened = await kms.vault.unwrap_all(ACME, wraps)
    assert opened == [data_key for data_key, _ in data_keys] * 3
    assert await kms.vault.unwrap_all(ACME, []) == []
    usable = await kms.database.read(kms.vault.usable_for, ACME, wraps)
    assert await kms.vault.unwrap_under(usable, wraps) == opened
    await kms.disable(keys[1])
    with pytest.raises(Conflict):
        await kms.vault.unwrap_all(ACME, wraps)


async def test_material_is_opened_once_and_kept_for_five_minutes(
    kms: KmsWorld, provider: CountingProvider
) -> None:
    key = await kms.make("app")
    burst = [kms.vault.wrap(ACME, key.id, DATA_KEY, b"") for _ in range(20)]
    wraps = await asyncio.gather(*burst)
    assert provider.unwrapped == 1
    provider.is_gone = True
    assert await kms.vault.unwrap(ACME, key.id, wraps[0], b"") == DATA_KEY
    kms.clock.advance(MAX_AGE_SECONDS + 1)
    with pytest.raises(Unavailable):
        await kms.vault.unwrap(ACME, key.id, wraps[0], b"")
    provider.is_gone = False
    assert await kms.vault.unwrap(ACME, key.id, wraps[0], b"") == DATA_KEY
    assert provider.unwrapped == 2


async def test_a_data_key_is_wrapped_without_waiting_only_if_its_key_is_open(
    kms: KmsWorld, provider: CountingProvider
) -> None:
    key = await kms.make("app")
    closed = await kms.database.read(kms.vault.find_usable, ACME, key.id)
    assert kms.vault.wrap_if_open(closed, DATA_KEY, b"object") is None
    await kms.vault.wrap_under(closed, [])
    assert kms.vault.wrap_if_open(closed, DATA_KEY, b"object") is None, "it was looked at closed"
    usable = await kms.database.read(kms.vault.find_usable, ACME, key.id)
    wrapped = kms.vault.wrap_if_open(usable, DATA_KEY, b"object")
    assert wrapped is not None
    assert await kms.vault.unwrap(ACME, key.id, wrapped, b"object") == DATA_KEY
    assert provider.unwrapped == 1
    assert Vault(kms.database, kms.providers, kms.clock).wrap_if_open(usable, b"", b"") is None


async def test_opened_material_is_bounded(
    kms: KmsWorld, provider: CountingProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vault, "MAX_OPENED", 2)
    keys = [await kms.make(f"key-{number}") for number in range(3)]
    for key in (keys[0], keys[1], keys[0], keys[2], keys[0], keys[1]):
        await kms.vault.wrap(ACME, key.id, DATA_KEY, b"")
    assert provider.unwrapped == 4  # the second was dropped, as the one not used for longest
    assert len(kms.vault._opened) == 2


async def test_a_waiter_that_goes_leaves_the_others(
    kms: KmsWorld, provider: CountingProvider
) -> None:
    key = await kms.make("app")
    first = asyncio.create_task(kms.vault.wrap(ACME, key.id, DATA_KEY, b""))
    second = asyncio.create_task(kms.vault.wrap(ACME, key.id, DATA_KEY, b""))
    await provider.is_asked.wait()
    first.cancel()
    wrapped = await second
    assert await kms.vault.unwrap(ACME, key.id, wrapped, b"") == DATA_KEY
    assert kms.vault._opening == {}


async def test_no_other_use_and_no_other_root_key_opens_a_wrap(kms: KmsWorld) -> None:
    """What callers encrypt is none either."""
    key = await kms.make("app")
    wrapped = await kms.vault.wrap(ACME, key.id, DATA_KEY, b"")
    sealed = (await kms.vault.seal(ACME, key.id, "encrypt", DATA_KEY)).value
    with pytest.raises(CiphertextInvalid):
        await kms.vault.open(ACME, key.id, "encrypt", wrapped)
    with pytest.raises(CiphertextInvalid):
        await kms.vault.unwrap(ACME, key.id, sealed, b"")
    providers = Providers(EmbeddedProvider(Keyring(bytes(32))))
    with pytest.raises(Unavailable, match="another root key"):
        await Vault(kms.database, providers, kms.clock).wrap(ACME, key.id, DATA_KEY, b"")


async def test_a_rotation_of_a_number_that_is_taken_is_refused(kms: KmsWorld) -> None:
    key = await kms.make("app")
    rival = await kms.maker.new_version(key, 2, kms.clock())
    await kms.rotate(key)
    with pytest.raises(services.RotatedMeanwhile):
        await kms.database.write(services.rotate_key, rival, kms.clock())
    scope = Scope(ACME, "local")
    found = await kms.database.read(resolve, scope, KEY_KIND, "kms_key", "app", None)
    assert found.current_version == 2


class FailingProvider(EmbeddedProvider):
    """Wraps once, and then no more."""

    def __init__(self) -> None:
        super().__init__(KEYRING)
        self.wrapped = 0

    async def wrap(self, material: bytes, ref: VersionRef) -> bytes:
        """Wrap the material of a version."""
        self.wrapped += 1
        if self.wrapped > 1:
            raise Unavailable("gone")
        return await super().wrap(material, ref)


@on_both_databases
async def test_platform_keys_are_added_by_many_processes_and_after_a_failure(
    kms: KmsWorld,
) -> None:
    """An interrupted start leaves no account with two, and the next one adds what is missing."""
    failing = KeyMaker(Providers(FailingProvider()), "local", uuid7)
    with pytest.raises(Unavailable):
        await failing.add_missing_platform_keys(kms.database, kms.clock())
    assert await kms.database.read(list_accounts_without_platform_key, 9) == [GLOBEX]
    first = await kms.database.read(find_platform_key, ACME)
    makers = [KeyMaker(kms.providers, "local", uuid7) for _ in range(3)]
    await asyncio.gather(
        *(maker.add_missing_platform_keys(kms.database, kms.clock()) for maker in makers)
    )
    assert await kms.database.read(list_accounts_without_platform_key, 9) == []
    assert await kms.database.read(find_platform_key, ACME) == first
    for account_id in (ACME, GLOBEX):
        key = await kms.database.read(find_platform_key, account_id)
        assert key is not None
        wrapped = await kms.vault.wrap(account_id, key.id, DATA_KEY, b"")
        assert await kms.vault.unwrap(account_id, key.id, wrapped, b"") == DATA_KEY
