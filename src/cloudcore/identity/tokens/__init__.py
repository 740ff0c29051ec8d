"""Access tokens and the keys that sign them; authentication of requests by token or signature."""
