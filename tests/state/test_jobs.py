"""What may become of a job, and where it lies: pure."""

import pytest
from attrs import evolve

from ballista_py.errors import (
    InvalidData,
    JobAbandoned,
    JobCancelled,
    JobRefused,
    JobSuperseded,
    SqlError,
)
from ballista_py.state.documents.jobs import (
    MAX_ATTEMPTS,
    MAX_REQUEST_CHARS,
    JobChunk,
    JobDocument,
    JobObject,
    JobOwner,
    JobRequest,
    OpenJob,
    cancelled,
    canonical_job_id,
    chunk_key,
    claimed,
    closed,
    failed,
    given_back,
    job_key,
    outcome_error,
    progressed,
    succeeded,
    taken_over,
)

ID = "67e5504410b1426f9247bb680e5fe0c8"
PENDING = JobDocument(job_id=ID, request=JobRequest(sql="select 1"))
RUNNING = claimed(PENDING, "s1", "i1", 5)
MINE = JobOwner(scheduler_id="s1", instance_id="i1", attempt=1)
CHUNKS = (JobChunk(rows=2, bytes=10, digest="d"), JobChunk(rows=1, bytes=5, digest="e"))


def done(job, mine=MINE, files="f"):
    return succeeded(job, mine, files=files, chunks=CHUNKS, schema="s", now_ms=9)


STATES = {
    "PENDING": PENDING,
    "RUNNING": RUNNING,
    "SUCCEEDED": done(RUNNING),
    "FAILED": failed(RUNNING, MINE, "planning.sql", "no", 9),
    "CANCELLED": cancelled(RUNNING, 9),
    "CLOSED": closed(done(RUNNING)),
}
CHANGES = {
    "claimed": lambda job: claimed(job, "s2", "i2", 6),
    "progressed": lambda job: progressed(job, MINE, 1, 2),
    "succeeded": lambda job: done(job, files="other"),
    "failed": lambda job: failed(job, MINE, "error", "no", 9),
    "given_back": lambda job: given_back(job, MINE),
    "taken_over": lambda job: taken_over(job, MINE, "s2", "i2", 6),
    "closed": closed,
    "cancelled": lambda job: cancelled(job, 10),
}
ALLOWED = {
    "PENDING": {"claimed": "RUNNING", "cancelled": "CANCELLED"},
    "RUNNING": {
        "progressed": "RUNNING", "succeeded": "SUCCEEDED", "failed": "FAILED", "given_back": "PENDING",
        "taken_over": "RUNNING", "cancelled": "CANCELLED",
    },
    "SUCCEEDED": {"closed": "CLOSED", "cancelled": "SUCCEEDED"},
    "FAILED": {"closed": "CLOSED", "cancelled": "FAILED"},
    "CANCELLED": {"closed": "CLOSED", "cancelled": "CANCELLED"},
    "CLOSED": {"closed": "CLOSED", "cancelled": "CLOSED"},
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("state", STATES)
def test_every_change_in_every_state_is_the_one_of_the_table_or_refused(state, change):
    assert STATES[state].state == state
    wanted = ALLOWED[state].get(change)
    if wanted is None:
        with pytest.raises(JobRefused):
            CHANGES[change](STATES[state])
    else:
        assert CHANGES[change](STATES[state]).state == wanted


@pytest.mark.parametrize("other", [{"attempt": 2}, {"instance": "i2"}, {"owner": "s2"}])
def test_only_the_attempt_that_runs_a_job_has_a_say_in_it(other):
    for change in (done, lambda job: failed(job, MINE, "x", "", 1), lambda job: progressed(job, MINE, 1, 1)):
        with pytest.raises(JobSuperseded, match="has no say"):
            change(evolve(RUNNING, **other))


def test_a_result_that_was_committed_is_committed_again_as_it_is():
    assert done(STATES["SUCCEEDED"]) is STATES["SUCCEEDED"]
    with pytest.raises(JobSuperseded):
        done(STATES["SUCCEEDED"], files="another run")


def test_a_job_is_begun_by_so_many_and_then_failed_with_the_reason():
    job = RUNNING
    for number in range(2, MAX_ATTEMPTS + 1):
        job = taken_over(job, job.running, f"s{number}", f"i{number}", 6)
        assert (job.state, job.attempt) == ("RUNNING", number)
    job = taken_over(job, job.running, "s9", "i9", 7)
    assert (job.state, job.code) == ("FAILED", JobAbandoned.code)
    assert f"'s{MAX_ATTEMPTS}'" in job.message


def test_an_attempt_that_was_given_back_counts_for_no_death():
    job = RUNNING
    for number in range(2, 9):
        job = claimed(given_back(job, job.running), f"s{number}", f"i{number}", 6)
    assert (job.state, job.attempt) == ("RUNNING", 8)
    assert taken_over(job, job.running, "s9", "i9", 7).state == "RUNNING"


def test_why_there_is_no_result():
    assert isinstance(outcome_error(STATES["FAILED"]), SqlError)
    assert isinstance(outcome_error(STATES["CANCELLED"]), JobCancelled)
    assert isinstance(outcome_error(STATES["CLOSED"]), JobRefused)
    assert [outcome_error(STATES[name]) for name in ("PENDING", "RUNNING", "SUCCEEDED")] == [None, None, None]


def test_keys_tell_clients_apart_and_are_read_back():
    mine = evolve(STATES["SUCCEEDED"], client="ada")
    assert job_key(ID) == f"jobs/{ID}.json"
    assert job_key(ID, "ada") == f"jobs/fdee430d40bd57de.{ID}.json" == mine.own_key
    assert mine.chunk_keys()[1] == f"jobs/fdee430d40bd57de.{ID}/1/f-00001.arrow"
    assert JobObject.of_key(mine.own_key) == JobObject(mine.name)
    assert JobObject.of_key(chunk_key(mine.name, 3, "f", 2)) == JobObject(mine.name, 3, "f-00002.arrow")
    assert OpenJob.of_key(mine.marker.key, 7) == evolve(mine.marker, since_ms=7)
    assert mine.marker.client == "fdee430d40bd57de"
    for key in (mine.marker.key, "jobs/clock-1", "jobs/x.json", f"jobs/{ID}/x/f.arrow"):
        assert JobObject.of_key(key) is None
    assert OpenJob.of_key("jobs/open/x", 0) is None


@pytest.mark.parametrize("text", ["", "1", "../" + ID, ID + "0", "g" * 32, 7, None, "ℹ" * 32])
def test_what_is_no_uuid_is_no_id(text):
    with pytest.raises(InvalidData, match="is no UUID"):
        canonical_job_id(text)


@pytest.mark.parametrize(
    "request_", [
        JobRequest(sql="x" * (MAX_REQUEST_CHARS + 1)), JobRequest(sql="x", parameters="x" * MAX_REQUEST_CHARS),
        JobRequest(sql="x", name="n" * 201), JobRequest(sql="x", name="a\nb"), JobRequest(sql="x", priority=10),
        JobRequest(sql="x", priority=-1),
    ],
)  # fmt: skip
def test_a_request_beyond_its_bounds_is_refused(request_):
    with pytest.raises(InvalidData):
        request_.check()
