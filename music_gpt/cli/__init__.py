"""Words on the command line -> work done: the verbs of `music-gpt`."""
