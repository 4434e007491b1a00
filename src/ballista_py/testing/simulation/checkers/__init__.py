"""What judges a history."""
