"""The kit that attacks clusters: simulation, faulty stores, history checkers, strategies. Public."""
