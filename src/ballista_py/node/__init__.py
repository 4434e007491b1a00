"""The reference node: it wires the lower floors into schedulers, executors, a local cluster and a command line."""
