"""Statements at the owners of partitions: what they do to files and manifests, without network and threads."""
