"""An engine that lost what was loaded is given it again, without anybody asking."""

import pytest

from ballista_py.errors import BallistaError, NotOwner
from ballista_py.storage.formats.files import RowsAtHand
from ballista_py.storage.manifest import DataFile

POISON = "select make_timestamp(k - 9223372036854775807 - 1 - {0})::varchar from t"


def test_what_is_held_is_loaded_again(world):
    world.put(1, 5)
    world.holder.apply(world.update(1, (1, 1, "owner")))
    world.holder.tick()
    assert world.read((1, 1)) == [5]
    world.holder.files.stage("t", [(DataFile(path="snapshots/t/data/staged", rows=1, bytes=1), world.rows(7))])
    leg = world.leg((1, 1))
    with pytest.raises(BallistaError, match="engine failed"):
        list(world.engine.query(POISON.format(5), world.holder.files_for(leg)).batches())
    world.engine.watch()
    with pytest.raises(NotOwner):
        world.read((1, 1))
    world.holder.tick()
    assert world.read((1, 1)) == [5]
    assert world.holder.held()[0].active == (1,)
    world.holder.files.unstage("t", ["snapshots/t/data/staged"])
    world.put(1, 6)
    world.holder.refresh("t")
    world.holder.tick()
    assert world.read((1, 1)) == [5, 6]
    assert world.engine.load("t", [RowsAtHand(file_id=99, rows=world.rows(1))]) == 1
