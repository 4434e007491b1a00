"""Documents that change by conditional writes."""
