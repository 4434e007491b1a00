"""How nodes and clients talk: the Flight data plane and the gRPC control stream."""
