"""Design notes have one form, and each is found in the index by its topic."""

import re
from pathlib import Path

import pytest

DESIGN = Path(__file__).parents[2] / "docs" / "design"
NOTES = sorted(DESIGN.glob("[0-9]*.md"))


@pytest.mark.parametrize("note", NOTES, ids=lambda note: note.stem)
def test_a_note_says_its_number_status_problem_decision_and_tests(note):
    text = note.read_text()
    number = note.name[:3]
    assert re.match(
        rf"# {number} \S.*\n\n\*(Accepted|Proposed|Superseded by \d{{3}}), 20\d\d-\d\d-\d\d\.\*\n", text
    )
    places = [text.find(part) for part in ("\n**Problem.**", "\n**Decision")]
    assert -1 not in places
    assert places == sorted(places)


def test_numbers_are_given_once_and_the_index_names_every_note():
    assert len({note.name[:3] for note in NOTES}) == len(NOTES)
    named = re.findall(r"^\d{3}-\S+$", (DESIGN / "index.md").read_text(), re.MULTILINE)
    assert sorted(named) == [note.stem for note in NOTES]
