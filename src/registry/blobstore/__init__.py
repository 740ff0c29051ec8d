"""The blob store: bytes by object id. What an object is used for, only the database knows."""
