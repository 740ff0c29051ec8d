"""What history and events tell of a request to the control plane."""

from __future__ import annotations

from cloudcore.web.context import Context
from registry.services.changes import Act, Site


def site_of(ctx: Context) -> Site:
    """Return where this registry stands."""
    return Site(ctx.settings.region, ctx.settings.host)


def act_of(ctx: Context) -> Act:
    """Return the caller's change, made now."""
    assert ctx.caller is not None
    return Act(ctx.caller.crn, ctx.clock(), site_of(ctx))
