"""Text for Spark: nothing of a client becomes code."""
