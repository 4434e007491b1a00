"""Tables that follow the changes of a source: batches of changes, what they come to, and who reads them."""
