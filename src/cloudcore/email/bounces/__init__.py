"""Bounces and complaints: mail that comes back to the return path of a message.

`verp`: the return path, which names the message and the recipient, and is authenticated.
`mail_server`: accepts mail to return paths and to ``complaints@``, and no other mail.
`reports`: parses that mail, which comes from strangers and may be malformed.
`bounces`: stores the report and suppresses the recipient's address.
"""
