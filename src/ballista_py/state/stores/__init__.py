"""Object stores with conditional writes."""
