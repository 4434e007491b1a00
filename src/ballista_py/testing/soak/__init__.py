"""Real nodes for minutes, while they are killed."""
