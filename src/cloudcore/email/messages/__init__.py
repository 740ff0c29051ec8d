"""Messages: accepted by ``/v1/messages`` and sent by a job, to each recipient separately.

`routes`: checks a request.
`submission`: stores the message and its jobs in one transaction.
`mime`: composes the bytes of a message.
`delivery`: signs and sends the message until the recipient's mail server accepts or rejects it.
`rows`: stores the status of each recipient.
"""
