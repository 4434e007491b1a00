"""Tables that are scanned where they lie: tasks, how they are cut, who runs them, and what becomes of each; pure."""
