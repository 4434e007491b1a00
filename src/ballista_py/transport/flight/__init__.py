"""Arrow Flight: data between nodes and clients."""
