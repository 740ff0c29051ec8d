"""Queues: messages that wait until a consumer has leased and acknowledged them.

`queue` describes one, `queues` is its rows and rules, `messages` and `message_rows` send, lease and
acknowledge, `long_polling` lets consumers wait.
"""
