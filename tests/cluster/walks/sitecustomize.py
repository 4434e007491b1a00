"""Python imports this in nodes that a test starts: they note which modules of ours they enter, until they are asked."""

import os
import signal
import sys
import threading

SRC, FOLDER = os.environ["BALLISTA_WALKS_SRC"], os.environ["BALLISTA_WALKS"]
entered: set[str] = set()
this = threading.local()


def note(frame, event, _argument):
    code = frame.f_code
    if event != "call" or not code.co_filename.startswith(SRC):
        return
    # What repeats belongs to no statement, nor does the control stream, nor the port of HTTP, which nobody asks here.
    if code.co_qualname == "Loop._run" or "/node/http/" in code.co_filename:
        this.is_background = True
    if not hasattr(this, "is_background"):
        this.is_background = threading.current_thread().name.startswith("control")
    if not this.is_background:
        entered.add(code.co_filename[len(SRC) + 1 :])


def tell(_signal, _frame):
    names = sorted(entered)
    entered.clear()
    with open(f"{FOLDER}/{os.getpid()}.new", "w") as file:
        file.write("\n".join(names))
    os.rename(file.name, f"{FOLDER}/{os.getpid()}")


if sys.argv[0] == "-m":
    signal.signal(signal.SIGUSR2, tell)
    threading.setprofile(note)
    sys.setprofile(note)
