"""The family of notifications: topics, and who is told of what is published to them."""
