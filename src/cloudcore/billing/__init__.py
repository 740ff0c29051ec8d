"""Billing: payment methods of organizations, the invoices of each month, and their payment.

`closing` makes invoices of what was metered and of the prices of the catalogue, `charging` pays
them through `processor`, which has two implementations: Stripe, and an embedded one that moves no
money. The numbers of cards never come here (`card_numbers`). Amounts are exact decimals (`money`).
"""
