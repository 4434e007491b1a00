"""An executor that holds a table while another one gets its name, and is told of both in any order."""

import pytest
from attrs import evolve

from ballista_py.errors import NotOwner, TableAltered


@pytest.fixture
def tables(world):
    """Two tables of one name, the later of which has a map of its own, with fewer commits."""
    first = evolve(world.table(), named=1)
    later = evolve(world.table(), named=2, incarnation="later", map_apart=True)
    for table in (first, later):
        world.put(0, 1, table=table.folder)
    return first, later


def leg(world, table):
    found = world.leg((0, 1))
    return evolve(
        found,
        tables=tuple(evolve(t, definition=table.definition, incarnation=table.incarnation) for t in found.tables),
    )


def folders(world):
    return [held.table for held in world.holder.held() if held.active]


def test_the_later_table_counts_whatever_its_map_counts(world, tables):
    first, later = tables
    assert world.holder.apply(world.update(50, (0, 1, "owner"), table=first))
    world.holder.tick()
    assert folders(world) == [first.folder]
    assert world.holder.apply(world.update(1, (0, 1, "owner"), table=later))
    world.holder.tick()
    assert folders(world) == [later.folder]
    assert not world.holder.apply(world.update(60, (0, 1, "owner"), table=first))
    assert not world.holder.apply(world.update(61, table=first))  # a farewell that comes late
    world.holder.tick()
    assert folders(world) == [later.folder]


def test_a_farewell_to_the_one_before_ends_it_and_the_later_one_may_come_afterwards(world, tables):
    first, later = tables
    world.holder.apply(world.update(50, (0, 1, "owner"), table=first))
    world.holder.tick()
    world.holder.apply(world.update(51, table=first))
    assert folders(world) == []
    world.holder.apply(world.update(1, (0, 1, "owner"), table=later))
    world.holder.tick()
    assert folders(world) == [later.folder]


def test_legs_and_rows_of_the_other_table_are_refused(world, tables):
    first, later = tables
    world.holder.apply(world.update(1, (0, 1, "owner"), table=later))
    world.holder.tick()
    assert world.holder.files_for(leg(world, later))
    mine = evolve(leg(world, later), tables=tuple(evolve(t, revision=9) for t in leg(world, later).tables))
    assert world.holder.files_for(mine)
    other = leg(world, evolve(first, incarnation="first"))
    with pytest.raises(NotOwner):
        world.holder.files_for(other)
    for exact in (True, False):
        with pytest.raises(TableAltered, match="was replaced"):
            world.holder.require_definition(other.tables[0], exact=exact)
        world.holder.require_definition(mine.tables[0], exact=exact)


def test_a_table_that_is_renamed_is_held_under_its_new_name_alone(world, tables):
    first, _ = tables
    first = evolve(first, incarnation="first")
    renamed = evolve(first, name="u", made_as="t", named=5, definition=1)
    assert (renamed.folder, renamed.map_name) == (first.folder, "t")
    world.put(0, 7, table=first.folder)
    world.holder.apply(world.update(3, (0, 1, "owner"), table=first))
    world.holder.tick()
    assert world.holder.apply(world.update(4, (0, 1, "owner"), table=renamed))
    world.holder.tick()
    assert [name for name, _ in world.holder.owned_partitions()] == ["u"]
    assert not world.holder.apply(world.update(9, (0, 1, "owner"), table=first))  # which comes late
    found = evolve(leg(world, renamed), tables=tuple(evolve(t, table="u") for t in leg(world, renamed).tables))
    files = world.holder.files_for(found)
    (rows,) = (batch.to_pylist() for batch in world.engine.query("select k from u", files).batches())
    assert rows == [{"k": 7}]
    with pytest.raises(NotOwner):
        world.holder.files_for(leg(world, first))


def test_tables_that_exchange_their_names_are_each_held_under_the_new_one(world, tables):
    one, two = (evolve(world.table(name), incarnation=name, named=n) for n, name in enumerate("tu", 1))
    for table, key in ((one, 1), (two, 2)):
        world.put(0, key, table=table.folder)
        world.holder.apply(world.update(1, (0, 1, "owner"), table=table))
    world.holder.tick()
    one = evolve(one, name="u", made_as="t", named=5, definition=2)  # by way of a third name
    two = evolve(two, name="t", made_as="u", named=4, definition=1)
    for table in (one, two, one, two):
        world.holder.apply(world.update(2, (0, 1, "owner"), table=table))
    world.holder.tick()
    for table, key in ((one, 1), (two, 2)):
        found = evolve(
            leg(world, table), tables=tuple(evolve(t, table=table.name) for t in leg(world, table).tables)
        )
        (rows,) = (
            batch.to_pylist()
            for batch in world.engine.query(f"select k from {table.name}", world.holder.files_for(found)).batches()
        )
        assert rows == [{"k": key}]


def test_a_commit_that_was_under_way_when_the_table_was_renamed_is_served_under_the_new_name(world, tables):
    first = evolve(tables[0], incarnation="first")
    renamed = evolve(first, name="u", made_as="t", named=5, definition=1)
    world.put(0, 7, table=first.folder)
    world.holder.apply(world.update(3, (0, 1, "owner"), table=first))
    world.holder.tick()
    target = leg(world, first).tables[0]
    with world.holder.changing(target, exact=False):
        world.holder.apply(world.update(4, (0, 1, "owner"), table=renamed))
        world.holder.tick()
        assert folders(world) == []  # nobody is told that it is shown
        file = world.put_file(8, table=first.folder)
        storage = world.storage(0, first.folder)
        storage.commit(add=[file], epoch=1, token="late")
    world.holder.publish({0: storage.read()})
    found = evolve(leg(world, renamed), tables=tuple(evolve(t, table="u") for t in leg(world, renamed).tables))
    (rows,) = (
        batch.to_pylist()
        for batch in world.engine.query("select k from u order by k", world.holder.files_for(found)).batches()
    )
    assert rows == [{"k": 7}, {"k": 8}]
    with pytest.raises(NotOwner), world.holder.changing(target, exact=False):
        raise AssertionError
