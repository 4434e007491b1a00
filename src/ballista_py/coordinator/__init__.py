"""What a scheduler decides about statements: queries, writes, tables. A library without threads and sockets."""
