"""The kit that attacks clusters: simulation, faulty stores, history checkers, strategies. Public.

`StoreContract` proves a store of yours, `FaultyStore` and `HttpProxy` make any store lose replies.
"""

from ballista_py.testing.chance import Chance
from ballista_py.testing.faulty_store import FaultyStore, StoreFaults
from ballista_py.testing.http_proxy import HttpProxy, ReplyFaults
from ballista_py.testing.store_contract import StoreContract

__all__ = ["Chance", "FaultyStore", "HttpProxy", "ReplyFaults", "StoreContract", "StoreFaults"]
