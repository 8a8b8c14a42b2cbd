"""Libraries that would tell their makers about this machine are told not to."""

import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT

OPEN_A_SESSION = """
from service.routing.encoder_file import packaged_model
from service.routing.runtime import onnxruntime
print(len(onnxruntime.InferenceSession(packaged_model(), providers=["CPUExecutionProvider"]).get_inputs()))
"""


def test_the_encoder_sends_no_events_to_the_maker_of_its_runtime(tmp_path: Path) -> None:
    """ONNX Runtime, where its telemetry is on, keeps the machine's id and what it is to send in the home folder."""
    environment = {name: value for name, value in os.environ.items() if name not in {"CI", "ORT_DISABLE_TELEMETRY"}}  # CI turns it off too
    environment |= {"HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}

    done = subprocess.run([sys.executable, "-c", OPEN_A_SESSION], env=environment, capture_output=True, text=True, check=True, timeout=60)

    assert int(done.stdout) >= 2
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
