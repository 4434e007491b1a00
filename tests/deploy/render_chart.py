"""Render the Helm chart as Helm does, check every object against the schemas of Kubernetes, print all as JSON.

Run by the Python of `.venv/deploy`: `render_chart.py CHART` reads a list of values from standard input.
"""

import json
import sys

import kubernetes_validate
import yaml
from helm_python.chart import Chart, lint

KUBERNETES = ("1.27", "1.33", "1.37")
NOT_OF_KUBERNETES = {"ServiceMonitor"}  # a definition of Prometheus' operator


def rendered(chart, values):
    """The objects that these values make."""
    with Chart.load(chart) as loaded:
        texts = loaded.render(values=values, name="prod", namespace="data")
    return [made for text in texts.values() for made in yaml.safe_load_all(text) if made]


def main():
    chart = sys.argv[1]
    objects = [rendered(chart, values) for values in json.load(sys.stdin)]
    for made in (one for group in objects for one in group):
        if made["kind"] not in NOT_OF_KUBERNETES:
            for version in KUBERNETES:
                kubernetes_validate.validate(made, version, strict=True)
    print(json.dumps({"objects": objects, "lint": str(lint(chart))}))


main()
