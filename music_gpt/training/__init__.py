"""Batches -> weights that predict them better: one run, its folder, and what a person sees."""
