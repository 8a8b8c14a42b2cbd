"""ONNX Runtime without its telemetry: the official builds send events to their maker unless told not to before they are imported."""

import os

# At import, against the house's rule: ONNX Runtime 1.32 has begun by the time that `disable_telemetry_events()` can be called.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import onnxruntime

__all__ = ["onnxruntime"]
