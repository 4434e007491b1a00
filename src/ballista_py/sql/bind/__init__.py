"""Names and types: from a tree to a bound query."""
