"""Ids that were heard -> the ids that follow: grammar, sampler, window and engines."""

import os

# ONNX Runtime would tell its makers that it is used, and leave a name for the machine in the home
# folder; once it is imported, its own switch comes too late
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
