"""The bytes of buckets (`cloudcore.storage`), in a separate blob store.

Part of the composition: this package connects the ports of the storage family to the store, to data
keys and to the orphan scan. `store` stores and finds bytes; `pieces` writes a piece, and reads
consecutive pieces.
"""
