"""The rows of a partition: a fenced manifest over immutable files on the object store."""
