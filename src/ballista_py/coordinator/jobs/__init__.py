"""Jobs at a scheduler: submitted, queued, run, taken over, given out and forgotten; a library without threads."""
