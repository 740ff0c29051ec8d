"""``/v1/registry-settings``: settings that apply to all repositories of an account."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Final

from litestar.params import JSONBody
from msgspec import UNSET, Meta, UnsetType

from cloudcore.resource_names import Crn
from cloudcore.web.answers import RecordAnswers, answer_of
from cloudcore.web.app import Context
from cloudcore.web.caller_kinds import account_of
from cloudcore.web.context import Reply, RequestContext
from cloudcore.wire import RFC3339, RequestBody, ResponseBody, changes_of
from registry.metadata.settings import find_settings
from registry.services.registry_settings import update_settings

_PATH: Final = "/v1/registry-settings"

UndeleteDays = Annotated[int, Meta(ge=0, le=90)]
PullerPatterns = Annotated[
    list[Annotated[str, Meta(min_length=1, max_length=512)]], Meta(max_length=50)
]


class UpdateSettings(RequestBody):
    """The settings to change; null restores a setting's default."""

    undelete_days: UndeleteDays | UnsetType | None = UNSET
    """For how many days images, tags and repositories deleted from now on can be restored;
    0: not at all. Earlier deletions keep the time they were given."""
    uncounted_pullers: PullerPatterns | UnsetType | None = UNSET
    """CRNs of principals whose pulls are not recorded; ``*`` is any run of characters."""
    access_key_login: bool | UnsetType | None = UNSET
    """True to let container clients log in with an access key itself (its id as user name, its
    secret as password), with all rights of its service account until the key is revoked. False
    takes effect at the next request for a token: within five minutes."""


class SettingsAnswer(ResponseBody):
    """An account's settings."""

    undelete_days: int
    uncounted_pullers: Sequence[str]
    """The patterns, with accounts named by id."""
    access_key_login: bool
    """True if container clients may log in with an access key itself."""
    updated_at: RFC3339 | None
    """Null until the account changes a setting."""


_SETTINGS: Final = RecordAnswers(
    SettingsAnswer,
    "registry_settings",
    partial(answer_of, SettingsAnswer),
    noun="account's settings",
)


def _authorize(ctx: RequestContext) -> str:
    """Return the caller's account id; raise `AccessDenied` unless policies allow the action."""
    account_id = account_of(ctx)
    crn = Crn("registry", ctx.settings.region, account_id, "registry-settings", "default")
    ctx.authorize(str(crn))
    return account_id


@_SETTINGS.gets(_PATH, "registry:GetRegistrySettings")
async def get_settings(ctx: Context) -> ResponseBody:
    """Return the account's settings."""
    return _SETTINGS.one(await ctx.database.read(find_settings, _authorize(ctx)))


@_SETTINGS.updates(_PATH, "registry:UpdateRegistrySettings")
async def patch_settings(data: JSONBody[UpdateSettings], ctx: Context) -> Reply[ResponseBody]:
    """Change the account's settings; `uncounted_pullers` takes effect within five minutes."""
    account_id = _authorize(ctx)
    changes, now = changes_of(data), ctx.clock()
    return await ctx.commit(update_settings, account_id, changes, now, wrap=_SETTINGS.one)
