"""Generated from `control.proto` by `make proto`; change that file, never these."""
