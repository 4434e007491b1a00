"""Arrow from the wire: checked before anything looks at it."""
