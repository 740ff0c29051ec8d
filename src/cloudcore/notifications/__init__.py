"""Notifications: topics, subscriptions to them, and deliveries that survive crashes.

`topic` describes both; `topics` and `subscriptions` are rows and rules. `publishing` fans a message
or an event out, `delivering` and `sending` deliver by webhook, mail or queue, `attempts` records
the result, `envelope` makes and signs what is sent.
"""
