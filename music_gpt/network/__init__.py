"""Ids (B, T) -> logits (B, T, V): the decoder, its file, and the forms that others read."""
