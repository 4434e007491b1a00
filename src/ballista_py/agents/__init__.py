"""Agents: who reads a cluster's tables in parallel, from Python, polars or an engine of one's own."""
