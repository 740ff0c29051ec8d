"""Who makes a change through the control plane, when, and on which registry."""

from __future__ import annotations

from cloudcore.web.context import RequestContext
from registry.services.changes import Change, RegistryHost


def host_of(ctx: RequestContext) -> RegistryHost:
    """Return the region and host of this registry."""
    return RegistryHost(ctx.settings.region, ctx.settings.host)


def change_of(ctx: RequestContext) -> Change:
    """Return a change that the caller makes now."""
    assert ctx.caller is not None
    return Change(ctx.caller.crn, ctx.clock(), host_of(ctx))
