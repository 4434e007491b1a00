"""The front of a port: a process of its own that reads HTTP/2 of strangers before gRPC does."""
