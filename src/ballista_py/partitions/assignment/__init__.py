"""Which executor owns which partition. Pure."""
