"""Table Write: how rows of many tasks come to executors, and how their Agent has all of them committed at once."""
