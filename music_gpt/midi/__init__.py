"""A path or bytes -> notes in seconds, and notes -> a MIDI file: unwrapped, mended, timed, read."""
