"""The kernel and the families of the cloud, which are independent of the registry.

The modules here are what all packages share: clock, errors, names and references of resources, key
pairs, threads, the interface of the command line, `family` (one value that describes a family) and
`ports` (interfaces through which families use each other).

Kernel packages, from the lowest layer: `db`; `iam`, `jobs`, `serving`, `outbound`; `objects`;
`web`; `metering`, `quotas`; `resources`; `nodes`. Above them stand the families, which do not
import each other. The contract of the layers is in ``pyproject.toml``.
"""
