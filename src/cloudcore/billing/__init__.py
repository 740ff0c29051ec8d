"""Billing: payment methods of organizations, their monthly invoices, and payments.

`closing`: makes invoices from metered usage and the prices of the catalogue.
`charging`: pays invoices through a `processor`.
`stripe_processor`, `embedded_processor`: the two processors; the embedded one moves no money.
`card_numbers`: refuses requests with card numbers, which only the processor may get.
`money`: amounts, which are exact decimals.
"""
