"""Small models of protocols: a page each, every rule of which can be switched off to see what it is for."""
