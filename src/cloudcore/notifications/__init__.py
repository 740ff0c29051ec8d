"""Notifications: topics, subscriptions to them, and deliveries that survive crashes.

`topic`: describes the resources.
`topics`, `subscriptions`, `subscribing`: the rows and rules of the resources.
`publishing`: turns a message or an event into deliveries.
`delivering`: the job that attempts deliveries.
`sending`: sends to a webhook or by mail.
`attempts`: sends to a queue, and stores the outcomes of all attempts.
`envelope`: composes and signs messages.
"""
