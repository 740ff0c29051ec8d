"""Billing: payment methods of organizations, their monthly invoices, and payments.

`closing` makes invoices from metered usage and the prices of the catalogue, `charging` pays them
through `processor`, which has two implementations: Stripe, and an embedded one that moves no money.
Card numbers never reach this server (`card_numbers`). Amounts are exact decimals (`money`).
"""
