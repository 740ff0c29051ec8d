"""Networks of accounts: VPCs, what is in them, and what may pass between them and the internet."""
