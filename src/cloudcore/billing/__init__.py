"""Billing: payment methods of organizations, their monthly invoices, and payments.

`closing`: makes invoices from metered usage and the prices of the catalogue.
`charging`: pays invoices through a `processor`.
`stripe_processor`, `embedded_processor`: the two processors; the embedded one moves no money.
`card_numbers`: refuses card numbers, which never reach this server.
`money`: amounts, which are exact decimals.
"""
