"""Notifications: topics, subscriptions to them, and deliveries that survive crashes.

`topic` describes both; `topics` and `subscriptions` have their rows and rules. `publishing` turns a
message or an event into deliveries, `delivering` and `sending` deliver by webhook, mail or queue,
`attempts` records the results, `envelope` composes and signs messages.
"""
