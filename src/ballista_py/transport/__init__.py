"""How nodes talk: Arrow Flight carries data, a gRPC stream control. It carries values and decides nothing."""
