"""The bytes of buckets (`cloudcore.storage`), kept in a blob store of their own.

Part of the composition: it connects the ports of the storage family to the store, to data keys and
to the orphan scan. `store` stores and finds bytes, `pieces` writes one and reads many in order.
"""
