"""What read jobs hold: the files of one instant, named and kept for as long as a lease lasts."""
