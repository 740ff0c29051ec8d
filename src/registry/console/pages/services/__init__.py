"""Pages of nouns of other families that show more than their description gives."""
