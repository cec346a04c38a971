"""Numbers and notes -> pictures and pages that need nothing else: the look of all reports."""
