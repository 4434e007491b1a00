"""Table Read: how Agents, Clients, Coordinators and Servers talk; docs/table-read.md is the specification."""
