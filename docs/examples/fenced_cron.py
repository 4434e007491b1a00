"""A cron job that runs on one of several machines, once an hour, and never twice, whoever pauses or dies."""

import sys

from attrs import evolve, frozen

from ballista_py import ObjectState, open_store
from ballista_py.errors import Fenced
from ballista_py.state.documents.fence import activate, require_epoch


@frozen
class Report:
    """The resource that the job writes. Its `epoch` is the fence: the hour of the newest run that started."""

    epoch: int = 0
    text: str = ""


def run(report: ObjectState[Report], machine: str, hour: int, pause: bool = False) -> str:
    """Start the run of `hour`, work, write the result; a run that was overtaken meanwhile writes nothing."""
    activate(report, hour)
    text = f"report of hour {hour} by {machine}"
    if pause:  # a laptop lid, a long collection, a migrated machine: the next hour is run by somebody else
        run(ObjectState(open_store(url), "report.json", Report), "machine-2", hour + 1)

    def write(document: Report) -> Report:
        require_epoch(document, hour, "report.json")
        return evolve(document, text=text)

    return report.update(write).document.text


if __name__ == "__main__":
    url = sys.argv[1] if len(sys.argv) > 1 else "memory://fenced-cron"
    report = ObjectState(open_store(url), "report.json", Report)
    report.create(Report())
    print(run(report, "machine-1", hour=1))
    try:
        run(report, "machine-1", hour=2, pause=True)
    except Fenced as late:
        print(f"machine-1 woke up too late: {late}")
    assert report.read().document.text == "report of hour 3 by machine-2"
