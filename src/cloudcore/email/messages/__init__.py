"""Messages: accepted by ``/v1/messages`` and sent by a job, to each recipient by itself.

`routes` checks a request, `accepting` stores the message and its jobs in one transaction,
`composing` makes its bytes, and `sending` hands it over with its DKIM signature until the
recipient's server takes it or refuses it. `rows` keeps the status of each recipient.
"""
