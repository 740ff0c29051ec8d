"""Access by web pages: reads from listed origins, and none to a registry without sign-in."""
