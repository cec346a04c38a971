"""Numbers that a person may turn -> frozen dataclasses that have been checked: every knob once."""
