"""The registry's family: repositories, images and tags, with their background work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cloudcore.family import CommandGroup, Family
from registry.metadata.event_rule import EVENT_RULE
from registry.metadata.pull_through.cache_rule import CACHE_RULE
from registry.quotas import QUOTAS
from registry.services import resource_kinds
from registry.services.resource_kinds import REGISTRY_SKUS

if TYPE_CHECKING:
    from registry.composition.stores import RegistryStores


REGISTRY: Final[Family[RegistryStores]] = Family(
    name="registry",
    title="Repositories",
    runs="registry.composition.runtime:RUNTIME",
    paths=(
        "/v1/authorization-token",
        "/v1/encryption-binding",
        "/v1/encryption-bindings",
        "/v1/event-rules",
        "/v1/garbage-collection",
        "/v1/key-usage",
        "/v1/pull-through-cache-rules",
        "/v1/registry-settings",
        "/v1/repositories",
        "/v1/storage-usage",
    ),
    skus=REGISTRY_SKUS,
    resource_kinds=(
        resource_kinds.REPOSITORY,
        EVENT_RULE.kind,
        CACHE_RULE.kind,
        resource_kinds.AUTHORIZATION_TOKEN,
        resource_kinds.REGISTRY_SETTINGS,
    ),
    foreign_kinds=(resource_kinds.TOPIC,),
    policy_templates=resource_kinds.TEMPLATES,
    other_events=(
        "registry.image.deleted",
        "registry.image.pushed",
        "registry.image.cached",
        "registry.lifecycle.completed",
        "registry.repository.created",
        "registry.repository.deleted",
        "registry.tag.deleted",
        "registry.tag.moved",
    ),
    event_words={
        "registry.image.cached": "An image was fetched by the pull-through cache",
        "registry.tag.moved": "A tag was created, moved or restored",
        "registry.lifecycle.completed": "A run of a lifecycle policy has ended",
    },
    recorded_actions=(
        "registry:CollectGarbage",
        "registry:ExpireCachedImages",
        "registry:RunLifecyclePolicy",
    ),
    quotas=(*QUOTAS, EVENT_RULE.room, CACHE_RULE.room),
    commands=(
        CommandGroup("sign in", ("registry.cli.commands.login",)),
        CommandGroup(
            "use a registry",
            (
                "registry.cli.commands.repositories",
                "registry.cli.commands.images",
                "registry.cli.commands.tags",
                "registry.cli.commands.repository_policies",
                "registry.cli.commands.lifecycle",
                "registry.cli.commands.mirrors",
                "registry.cli.commands.storage",
            ),
        ),
        CommandGroup(
            "set up an account",
            (
                "registry.cli.commands.settings",
                "registry.cli.commands.keys",
                "registry.cli.commands.encryption",
                "registry.cli.commands.events",
                "registry.cli.commands.gc",
                "registry.cli.commands.audit",
                "registry.cli.commands.usage",
                "registry.cli.commands.quotas",
                "registry.cli.commands.invoices",
            ),
        ),
        CommandGroup(
            "run a registry",
            (
                "registry.cli.server.commands",
                "registry.cli.server.config",
            ),
        ),
    ),
)
