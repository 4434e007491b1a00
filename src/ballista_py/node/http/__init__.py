"""The HTTP ports of a node: statements and the state of the cluster for clients, probes, people and Prometheus."""
