"""Jobs in virtual time: schedulers that pause, die and come back, over the real code."""
