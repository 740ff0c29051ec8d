"""Messages: accepted by ``/v1/messages`` and sent by a job, to each recipient separately.

`routes`: checks a request.
`submission`: stores the message and its jobs in one transaction.
`mime`: composes its bytes.
`delivery`: sends it with its DKIM signature until the recipient's server accepts or rejects it.
`rows`: stores the status of each recipient.
"""
