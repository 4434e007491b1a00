"""Table Read: grants and consumption tokens as decisions of Agent, Client and Server; no I/O is done here."""
