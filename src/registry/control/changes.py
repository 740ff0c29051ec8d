"""Who makes a change through the control plane, when, and on which registry."""

from __future__ import annotations

from cloudcore.web.context import RequestContext
from registry.services.changes import Change, RegistryHost


def change_of(ctx: RequestContext) -> Change:
    """Return a change that the caller makes now."""
    assert ctx.caller is not None
    host = RegistryHost(ctx.settings.region, ctx.settings.host)
    return Change(ctx.caller.crn, ctx.clock(), host, ctx.caller.source, details=ctx.details)
