"""Keys that wrap the data keys of sealed objects; empty until objects are sealed (docs/gaps.md)."""
