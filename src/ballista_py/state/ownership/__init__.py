"""Who owns which partition."""
