"""a folder of MIDI files -> a tokens folder: run once for each corpus, before training.

`collect` finds the files, `encode` reads them, `filters` leaves some out with a reason,
`fingerprint` and `split` keep a composition in one split, `prepare` is the recipe.
"""
