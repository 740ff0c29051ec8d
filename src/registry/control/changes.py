"""What history and events tell of a request to the control plane."""

from __future__ import annotations

from cloudcore.web.context import RequestContext
from registry.services.changes import Change, RegistryHost


def host_of(ctx: RequestContext) -> RegistryHost:
    """Return where this registry stands."""
    return RegistryHost(ctx.settings.region, ctx.settings.host)


def change_of(ctx: RequestContext) -> Change:
    """Return the caller's change, made now."""
    assert ctx.caller is not None
    return Change(ctx.caller.crn, ctx.clock(), host_of(ctx))
