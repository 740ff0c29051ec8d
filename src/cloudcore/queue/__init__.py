"""Queues: messages that wait until a consumer has leased and acknowledged them.

`queue` describes one, `queues` has its rows and rules, `messages` and `message_rows` send, lease
and acknowledge messages, `long_polling` lets consumers wait.
"""
