"""A real Kubernetes on this machine, for tests; nothing of it belongs to the product.

`make test-kubernetes` builds components and images, and then runs the tests in network, process and mount
namespaces of their own: with the namespaces ends all that runs in them.
"""

from pathlib import Path

ROOT = Path(__file__).parents[3]
DIRECTORY = ROOT / ".fraud" / "kubernetes"
"""For images and the cluster's data."""
COMPONENTS = "KUBERNETES_COMPONENTS"
"""Variable that names the directory of the components to the tests; without it they are skipped."""
