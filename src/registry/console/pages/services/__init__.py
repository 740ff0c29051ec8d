"""Pages of other families' resources that show more than their description provides."""
