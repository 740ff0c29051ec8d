"""Queues: messages that wait until a consumer has leased and acknowledged them.

- `queue`: the record and the resource.
- `queues`: the rows and rules of queues.
- `messages`, `message_rows`: send, lease and acknowledge messages.
- `long_polling`: lets consumers wait for messages.
"""
