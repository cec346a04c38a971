"""Batches -> weights that foretell them better: one run, its folder, and what a person sees."""
