"""`ballista-py demo`: TPC-H on a local cluster."""
