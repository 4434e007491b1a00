"""What a node tells of itself: HTTP, metrics, tasks."""
