"""Who belongs to the cluster, and who is alive."""
