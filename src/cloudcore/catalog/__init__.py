"""The public catalogues: regions and prices, from a JSON file of the operator."""
