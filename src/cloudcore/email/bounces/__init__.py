"""Bounces and complaints: mail that comes back to the return path of a message.

The return path names the message and the recipient, and is authenticated (`verp`). `mail_server`
takes mail to such addresses and no other, `reports` reads it, and `bounces` stores what it says and
suppresses the address. All of it comes from strangers and may be malformed.
"""
