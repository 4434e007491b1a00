"""Statements that run in a process of their own, which may die."""
