"""Write `k8s/monitoring/prometheus-rule.yaml`: the groups of `rules.yaml`, as Prometheus' operator takes them."""

from pathlib import Path

FOLDER = Path(__file__).parents[1] / "k8s" / "monitoring"
HEAD = """\
# Written by `make k8s-rules` from rules.yaml; change that.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: pointsman
spec:
"""


def wrapped(rules: str) -> str:
    """Return rules, a YAML document that begins with `groups:`, as the specification of a PrometheusRule."""
    return HEAD + "".join(f"  {line}" if line.strip() else line for line in rules.splitlines(keepends=True))


if __name__ == "__main__":
    (FOLDER / "prometheus-rule.yaml").write_text(wrapped((FOLDER / "rules.yaml").read_text()))
