"""A piece and a person's wishes -> its continuation, and a file by which it can be made again."""
