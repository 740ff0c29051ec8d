"""Bounces and complaints: mail that comes back to the return path of a message.

The return path names the message and the recipient, and is authenticated (`verp`). `mail_server`
accepts mail to such addresses and no other, `reports` parses it, and `bounces` stores the result
and suppresses the address. All this mail comes from strangers and may be malformed.
"""
