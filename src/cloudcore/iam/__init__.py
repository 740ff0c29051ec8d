"""Who a caller is and what policies let it do; pure, and below everything that asks."""
