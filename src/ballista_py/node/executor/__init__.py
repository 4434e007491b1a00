"""An executor: its wiring."""
