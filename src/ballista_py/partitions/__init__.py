"""Pure values and decisions: bucket, partition keys and map, assignment, selection, routing, SQL planning. No I/O."""
