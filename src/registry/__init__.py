"""The container registry: data plane, control plane, blob store, metadata and collector."""
