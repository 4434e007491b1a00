"""Read jobs over tables that are changed meanwhile, in virtual time."""
