"""One file for all that a cluster serves: what it says, how that differs from the catalog, and who brings it about."""
