"""Ids that were heard -> the ids that follow: grammar, sampler, window and engines."""
