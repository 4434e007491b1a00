"""SQL planning: from the text of a query to the fragments that legs run and the merge of their results.

The way of a statement: `text` tells its kind, `statement` parses it, `binder` resolves its names into the values of
`query`, `simplify` moves filters down, `places` decides where each block can run, `merging` cuts it into fragments and
a merge, and `render` writes both as SQL; `planner` is the way through all of them. Nothing is imported here: who reads
a statement that changes rows needs no planner.
"""
