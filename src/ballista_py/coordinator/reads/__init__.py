"""Read jobs: a query is cut into parts that anybody reads in parallel, at one instant, from where they are."""
