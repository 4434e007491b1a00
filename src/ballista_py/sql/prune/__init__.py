"""Which partitions and files a statement needs not look into."""
