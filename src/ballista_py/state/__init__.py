"""The object store as the only shared service: conditional documents, membership, leases, ownership."""
