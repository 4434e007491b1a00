"""Where each block of a query can run."""
