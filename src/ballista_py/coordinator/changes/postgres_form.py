"""What a table of PostgreSQL is by its catalog: whether it can be followed, and whether it is still what was copied.

A copy keeps marks of what it was made of in the name of its log: the relation, its publication, its columns and its
file. None comes back once it was changed (numbers of objects, columns and transactions are not given anew): marks that
are the same after the log was read were so while all of it was written.
"""

from __future__ import annotations

from base64 import b32encode
from collections.abc import Sequence
from hashlib import sha256
from itertools import accumulate
from typing import Any

from attrs import frozen

from ballista_py.errors import SourceError, SourceLost, SourceUnfit

PREFIX = "ballista_"
FIRST_OID = 16_384  # smaller ones are of the system's own tables
_MARKS = (4, 4, 3, 3)  # characters of each mark of a log; with all else 63 at most, which a slot's name may have
_KINDS = {
    "v": "a view",
    "m": "a materialized view",
    "f": "a foreign table",
    "S": "a sequence",
    "i": "an index",
    "I": "an index",
    "c": "a composite type",
    "t": "a TOAST table",
}


@frozen(kw_only=True)
class PublicationForm:
    """A publication, as the catalog has it; `mark` is another one after each change of it."""

    name: str
    mark: str
    of_all: bool
    whole: bool
    lists: bool
    cut: bool
    tables: int

    def lack(self) -> str | None:
        """What it does not tell of the one table that it is for; None if it tells all."""
        if self.of_all or self.tables > 1:
            return "it is of other tables, too"
        if not self.lists:
            return "the table is not in it"
        if not self.whole:
            return "it does not publish each of insert, update, delete and truncate"
        return "it has a row filter or a list of columns" if self.cut else None


@frozen(kw_only=True)
class RelationForm:
    """What a name means in the catalog at one moment.

    `columns` has of each one its number, its name, the transaction that altered it last and how it is generated;
    `file` is the file that has the rows.
    """

    oid: int
    kind: str
    persistence: str
    identity: str
    file: int
    is_parent: bool
    columns: tuple[tuple[str, str, str, str], ...]
    publication: PublicationForm | None

    @property
    def marks(self) -> str:
        """What the name of a log ends with that was made of it."""
        publication = "" if self.publication is None else self.publication.mark
        names, altered = _first_columns(self, len(self.columns))
        made = zip((publication, names, str(self.file), altered), _MARKS, strict=True)
        return f"{self.oid:x}_{''.join(_mark(text, size) for text, size in made)}"


def publication_of(oid: int) -> str:
    """What the publication of a relation is called."""
    return f"{PREFIX}{oid}"


def oid_in(log: str) -> int | None:
    """The relation that a log was made of; None if its name does not say it."""
    parts = log.split("_")
    try:
        return int(parts[-2], 16) if len(parts) == _PARTS and len(parts[-1]) == sum(_MARKS) else None
    except ValueError:
        return None


_PARTS = 5  # ballista, incarnation, place, relation, marks


def require_followable(there: str, form: RelationForm) -> None:
    """Raise `SourceUnfit`, with the way out, for a relation whose changes the log does not tell whole."""
    if form.kind == "p":
        raise SourceUnfit(
            f"{there} is partitioned, and its log does not tell when a partition of it is truncated, attached or "
            "detached: follow each of its partitions by a table of its own, and read them by UNION ALL"
        )
    if form.kind != "r" or form.oid < FIRST_OID:
        what = _KINDS.get(form.kind, "no table") if form.kind != "r" else "a table of the system"
        raise SourceUnfit(
            f"{there} is {what}, of which no log tells changes: follow the tables that it is made of"
        )
    if form.persistence == "t":
        raise SourceUnfit(f"{there} is a temporary table, of which no log tells changes: follow one that stays")
    if form.persistence != "p":
        raise SourceUnfit(
            f"{there} is unlogged, so that no log tells its changes: run ALTER TABLE {there} SET LOGGED there"
        )
    if form.is_parent:
        raise SourceUnfit(
            f"{there} has tables that inherit from it, whose rows are in it and not in its log: run ALTER TABLE "
            f"child NO INHERIT {there} there for each, or follow each of them by a table of its own"
        )
    generated = next(((name, how) for _, name, _, how in form.columns if how), None)
    if generated is not None:
        name, how = generated
        kept = (
            f"; or, to write it yourself from then on, ALTER COLUMN {name} DROP EXPRESSION" if how == "s" else ""
        )
        raise SourceUnfit(
            f"column '{name}' of {there} is generated, which its log does not tell: run ALTER TABLE {there} DROP "
            f"COLUMN {name} there, and compute it in queries{kept}"
        )


def require_rights(there: str, form: RelationForm, rights: Sequence[Any], statement: str) -> None:
    """Raise `SourceUnfit`, with what to run there, for what the user may not do or see.

    `rights` begins a row of `RIGHTS`. `statement` makes the publication: an owner has to run it for a user who may not.
    """
    user, publishes, reads, hides = rights
    if not reads:
        raise SourceUnfit(f"user {user} may not read {there}: run GRANT SELECT ON {there} TO {user} there")
    if hides:
        raise SourceUnfit(
            f"row level security hides rows of {there} from user {user}, which its log tells: run ALTER ROLE {user} "
            "BYPASSRLS there"
        )
    if form.publication is None and not publishes:
        raise SourceUnfit(f"user {user} may not publish {there}: run {statement} there as its owner")


def require_unique(key: Sequence[str], there: str, unique: Sequence[set[str]]) -> None:
    """Raise `SourceUnfit` unless columns of the key are unique by themselves, so that no two rows have one key."""
    if not any(columns <= set(key) for columns in unique):
        columns = ", ".join(key)
        raise SourceUnfit(
            f"two rows of {there} may have one primary key ({columns}) here: run ALTER TABLE {there} ADD UNIQUE "
            f"({columns}) there, or name other columns"
        )


def require_published(there: str, form: RelationForm) -> None:
    """Raise `SourceUnfit` for a publication that does not tell all changes of the relation, and of it alone."""
    publication = form.publication
    lack = None if publication is None else publication.lack()
    if publication is not None and lack is not None:
        raise SourceUnfit(
            f"publication {publication.name} does not tell all changes of {there}, and nothing else: {lack}: run DROP "
            f"PUBLICATION {publication.name} there, and make the table anew"
        )


def require_same(
    table: str, there: str, log: str, now: RelationForm | None, called: str | None, columns: Sequence[str]
) -> None:
    """Raise unless the log of table `table` is still made of what `there` is `now`.

    `called` is what the relation is called now that the log was made of, None if it is gone; `columns` are those of
    the table here. Raises `SourceUnfit` for what can be put back as it was, `SourceLost` where changes may be lacking.
    """
    oid, anew = oid_in(log), f"make table '{table}' anew"
    if oid is None:
        raise SourceLost(f"slot '{log}' does not say what it was made of: {anew}")
    if called is None:
        what = "no table has its name" if now is None else "what has its name is another table"
        raise SourceLost(f"{there} was dropped, and {what} now: {anew}")
    if now is None or now.oid != oid:
        what = "no table" if now is None else "another table"
        raise SourceUnfit(
            f"what table '{table}' follows is called {called} now, and {what} {there}: give it its name back, or {anew}"
        )
    error = _altered(there, log, now, columns)
    if error is not None:
        raise type(error)(f"{error.message}: {anew}")


def _altered(there: str, log: str, now: RelationForm, columns: Sequence[str]) -> SourceError | None:
    marks = log.rpartition("_")[2]
    said = [marks[end - size : end] for size, end in zip(_MARKS, accumulate(_MARKS), strict=True)]

    def differs(which: int, text: str) -> bool:
        return _mark(text, _MARKS[which]) != said[which]

    name = publication_of(now.oid)
    if now.publication is None:
        return SourceLost(f"publication {name} was dropped, so that what changed in {there} since was not told")
    if differs(0, now.publication.mark):
        return SourceLost(f"publication {name} was altered, so that changes of {there} may not have been told")
    known = {column[1] for column in now.columns}
    lacking = next((column for column in columns if column not in known), None)
    if lacking is not None:
        return SourceUnfit(f"{there} has no column '{lacking}' any more")
    firsts = (_first_columns(now, count) for count in range(1, len(now.columns) + 1))  # others may have come since
    first = next((texts for texts in firsts if not differs(1, texts[0])), None)
    if first is None:
        return SourceLost(
            f"columns of {there} were renamed, or dropped and made anew under their names, which its log does not tell"
        )
    if differs(2, str(now.file)) and differs(3, first[1]):
        return SourceLost(
            f"columns of {there} were altered, and its rows written anew, perhaps with other values, which its log "
            "does not tell"
        )
    return None


def _first_columns(form: RelationForm, count: int) -> tuple[str, str]:
    """Of the first columns: which they are, and who altered them last."""
    columns = form.columns[:count]
    names = "".join(f"{number} {len(name)} {name} " for number, name, _, _ in columns)
    return names, " ".join(column[2] for column in columns)


def _mark(text: str, size: int) -> str:
    """A few characters that may be in the name of a slot, which are others for another text."""
    return b32encode(sha256(text.encode()).digest()).decode().lower()[:size]


def form_of(row: Sequence[Any]) -> RelationForm:
    """The form that a row of `FORM` gives."""
    oid, kind, persistence, identity, file, is_parent, columns, *published = row
    publication = (
        None if published[0] is None else PublicationForm(**dict(zip(_PUBLISHED, published, strict=True)))
    )
    return RelationForm(
        oid=oid,
        kind=kind,
        persistence=persistence,
        identity=identity,
        file=file,
        is_parent=is_parent,
        columns=tuple(tuple(column) for column in columns),
        publication=publication,
    )


_PUBLISHED = ("name", "mark", "of_all", "whole", "lists", "cut", "tables")
FORM = """
select c.oid::int8, c.relkind::text, c.relpersistence::text, c.relreplident::text, c.relfilenode::int8,
    exists (select from pg_inherits i where i.inhparent = c.oid),
    array(select array[attnum::text, attname::text, a.xmin::text, attgenerated::text] from pg_attribute a
        where attrelid = c.oid and attnum > 0 and not attisdropped order by attnum),
    p.pubname::text, concat_ws(' ', p.oid, p.xmin, r.oid, r.xmin), p.puballtables,
    p.pubinsert and p.pubupdate and p.pubdelete and p.pubtruncate, r.oid is not null,
    coalesce(coalesce(to_jsonb(r) ->> 'prqual', to_jsonb(r) ->> 'prattrs') is not null, false),
    case when p.puballtables then 0 else
        (select count(*) from pg_publication_tables t where t.pubname = p.pubname) end
from pg_class c left join pg_publication p on p.pubname = ('ballista_' || c.oid)::name
    left join pg_publication_rel r on r.prpubid = p.oid and r.prrelid = c.oid
where c.oid = to_regclass(%s)"""
RIGHTS = """
select quote_ident(current_user),
    pg_has_role(c.relowner, 'USAGE') and has_database_privilege(current_database(), 'CREATE'),
    not exists (select from pg_attribute where attrelid = c.oid and attnum > 0 and not attisdropped
        and not has_column_privilege(c.oid, attnum, 'SELECT')),
    row_security_active(c.oid),
    (select rolreplication or rolsuper from pg_roles where rolname = current_user)
from pg_class c where c.oid = %s"""
UNIQUE = """
select array(select a.attname::text from pg_attribute a, unnest(i.indkey) with ordinality k(number, place)
    where a.attrelid = i.indrelid and a.attnum = k.number and k.place <= i.indnkeyatts)
from pg_index i where i.indrelid = %s and i.indisunique and i.indisvalid and i.indpred is null and i.indexprs is null"""
