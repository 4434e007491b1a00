"""Substrait in and out: a client's plan over one relation as SQL, and SQL that is left to do as a plan."""
