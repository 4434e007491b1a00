"""The control stream between schedulers and executors."""
