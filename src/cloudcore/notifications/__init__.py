"""Notifications: topics, subscriptions to them, and deliveries that survive crashes.

`topic`: the resources; `topics`, `subscriptions`, `subscribing`: their rows and rules.
`publishing`: turns a message or an event into deliveries.
`delivering`, `sending`: deliver by webhook, mail or queue.
`attempts`: records the results.
`envelope`: composes and signs messages.
"""
