"""Pages of the other families' resources, where they show more than the description gives."""
