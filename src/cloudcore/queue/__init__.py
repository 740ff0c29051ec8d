"""Queues: messages that wait until a consumer has leased and acknowledged them."""
