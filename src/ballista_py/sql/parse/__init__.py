"""Text: its kind, its tokens, its tree, its parameters."""
