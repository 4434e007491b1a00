"""Tables that are scanned where they lie: declared by name, read by snapshot, in tasks that any executor runs."""
