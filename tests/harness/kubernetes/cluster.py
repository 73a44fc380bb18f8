"""A cluster of one node in the network namespace of this process; pods are on a bridge in it."""

import json
import secrets
import socket
import subprocess
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from deploy.local.child import Child
from deploy.local.waiting import Patience
from harness.kubernetes.certificates import private
from harness.kubernetes.images import Image

ADDRESS = "10.88.0.1"
"""Of the node: API server, kubelet, DNS, and what pods need of these namespaces."""
BRIDGE, PODS, SERVICES = "pods0", "10.88.0.0/16", "10.96.0.0/16"
NODE = "node"
DOMAIN = "cluster.local"
PODS_WEIGHT = Path("/sys/fs/cgroup/cpu/kubepods/cpu.shares")
STARTS_S = 120.0
POLL_S = 0.2

Object = dict[str, Any]


class ClusterError(AssertionError):
    """kubectl was refused, or something did not come true."""


class Cluster:
    """All components of Kubernetes, with containerd, CoreDNS and kube-proxy; a context manager."""

    def __init__(self, programs: Path, pause: Image, directory: Path) -> None:
        """Prepare the files.

        Args:
            programs: directory of the components.
            pause: the image of the process that holds a pod's namespaces.
            directory: an empty one, for data and logs; on a file system that can be below an overlay.
        """
        self._programs, self._pause, self.directory = programs, pause, directory
        self._children = ExitStack()
        self._token = secrets.token_hex(16)
        self.kubeconfig = directory / "kubeconfig"
        self.server = f"https://{ADDRESS}:6443"

    def __enter__(self) -> Self:
        """Start all components, and wait until the node is ready."""
        try:
            self._network()
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        # pods that are left end with these namespaces
        self._children.close()

    def _network(self) -> None:
        for command in (
            ["ip", "link", "set", "lo", "up"],
            ["ip", "link", "add", BRIDGE, "type", "bridge"],
            ["ip", "address", "add", f"{ADDRESS}/16", "dev", BRIDGE],
            ["ip", "link", "set", BRIDGE, "up"],
            ["sysctl", "--quiet", "--write", "net.ipv4.ip_forward=1"],
        ):
            subprocess.run(command, check=True)
        # this process finds services by their names as pods do
        self._write("resolv.conf", f"nameserver {ADDRESS}\nsearch svc.{DOMAIN} {DOMAIN}\noptions ndots:5\n")
        subprocess.run(["mount", "--bind", self.directory / "resolv.conf", "/etc/resolv.conf"], check=True)
        # where the runtime and the network plugins keep state, whatever their settings
        for path in ("/run", "/var/lib/cni", "/var/log"):
            Path(path).mkdir(exist_ok=True)
            subprocess.run(["mount", "-t", "tmpfs", "tmpfs", path], check=True)

    def _start(self) -> None:
        self._write("tokens.csv", f"{self._token},admin,admin,system:masters\n")
        key = self.directory / "service-accounts.key"
        # Kubernetes reads no other form of a key for signatures
        form = serialization.PrivateFormat.TraditionalOpenSSL
        key.write_bytes(private(ec.generate_private_key(ec.SECP256R1()), form))
        certificates = self.directory / "api-server"
        etcd = ["--data-dir", str(self.directory / "etcd"), "--unsafe-no-fsync"]
        self._program("etcd", *etcd)
        api_server = self._program(
            "kube-apiserver", "--etcd-servers", "http://127.0.0.1:2379",
            "--bind-address", ADDRESS, "--advertise-address", ADDRESS, "--cert-dir", str(certificates),
            "--kubelet-preferred-address-types", "InternalIP",
            "--service-cluster-ip-range", SERVICES, "--authorization-mode", "Node,RBAC",
            "--token-auth-file", str(self.directory / "tokens.csv"),
            "--service-account-issuer", f"https://kubernetes.default.svc.{DOMAIN}",
            "--service-account-key-file", str(key), "--service-account-signing-key-file", str(key),
        )  # fmt: skip
        self.kubeconfig.write_text(json.dumps(self._access(certificates / "apiserver.crt")))
        api_server.wait_until(lambda: self._asks("get", "--raw", "/readyz"), STARTS_S)
        given = ["--kubeconfig", str(self.kubeconfig)]
        self._program(
            "kube-controller-manager", *given, "--leader-elect=false", "--use-service-account-credentials",
            "--service-account-private-key-file", str(key), "--bind-address", "127.0.0.1",
            "--root-ca-file", str(certificates / "apiserver.crt"),
            "--cert-dir", str(self.directory / "controllers"),
        )  # fmt: skip
        self._program(
            "kube-scheduler", *given, "--leader-elect=false", "--bind-address", "127.0.0.1",
            "--cert-dir", str(self.directory / "scheduler"),
        )  # fmt: skip
        # masquerading sends the answers of a pod on the same bridge back through the node
        self._program(
            "kube-proxy", *given, "--proxy-mode", "iptables", "--masquerade-all", "--hostname-override", NODE,
            "--conntrack-max-per-core", "0", "--conntrack-tcp-timeout-established", "0",
            "--conntrack-tcp-timeout-close-wait", "0",
        )  # fmt: skip
        dns = self._program("coredns", "-conf", str(self._write("Corefile", self._dns())))
        dns.wait_until(_finds_services, STARTS_S)
        containerd = self._child("containerd", "containerd", "--config", str(self._runtime()))
        containerd.wait_until(lambda: self._ctr("version") == 0, STARTS_S)
        self.load(self._pause)
        kubelet = self._program(
            "kubelet", *given, "--config", str(self._write("kubelet.yaml", yaml.safe_dump(self._kubelet()))),
            "--root-dir", str(self.directory / "kubelet"), "--cert-dir", str(self.directory / "kubelet-pki"),
            "--hostname-override", NODE, "--node-ip", ADDRESS,
        )  # fmt: skip
        kubelet.wait_until(lambda: self._asks("wait", f"node/{NODE}", "--for=condition=Ready"), STARTS_S)
        # kubelet gives all pods together the weight of two processes; beside other work that starves them
        PODS_WEIGHT.write_text("8192")

    def _program(self, name: str, *options: str) -> Child:
        return self._child(name, str(self._programs / name), *options)

    def _child(self, name: str, *command: str) -> Child:
        return self._children.enter_context(Child(name, command, self.directory / "logs" / f"{name}.log"))

    def _write(self, name: str, text: str) -> Path:
        path = self.directory / name
        path.write_text(text)
        return path

    def _access(self, authority: Path) -> Object:
        """The configuration of clients: the administrator's."""
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "c", "cluster": {"server": self.server, "certificate-authority": str(authority)}}
            ],
            "users": [{"name": "admin", "user": {"token": self._token}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "admin"}}],
            "current-context": "c",
        }

    def _dns(self) -> str:
        return (
            f".:53 {{\n    errors\n    ready 127.0.0.1:8181\n"
            f"    kubernetes {DOMAIN} {{\n        kubeconfig {self.kubeconfig}\n        ttl 1\n    }}\n}}\n"
        )

    @property
    def _socket(self) -> str:
        return str(self.directory / "containerd.sock")

    def _runtime(self) -> Path:
        """Configuration of containerd and of the pods' network."""
        plugins = self.directory / "cni"
        plugins.mkdir()
        network = {
            "cniVersion": "0.4.0",
            "name": "pods",
            "plugins": [
                {
                    "type": "bridge",
                    "bridge": BRIDGE,
                    "isGateway": True,
                    "hairpinMode": True,
                    "ipam": {
                        "type": "host-local",
                        "ranges": [[{"subnet": PODS, "gateway": ADDRESS}]],
                        "routes": [{"dst": "0.0.0.0/0"}],
                    },
                }
            ],
        }
        (plugins / "pods.conflist").write_text(json.dumps(network))
        # without the capability SYS_RESOURCE runc cannot lower a process's oom_score_adj
        return self._write(
            "containerd.toml",
            f"""\
version = 2
root = "{self.directory}/containerd"
state = "/run/containerd"
[grpc]
  address = "{self._socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{self._pause.name}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{plugins}"
""",
        )

    def _kubelet(self) -> Object:
        (self.directory / "pods-resolv.conf").touch()
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": ADDRESS,
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs",
            "clusterDNS": [ADDRESS],
            "clusterDomain": DOMAIN,
            "containerRuntimeEndpoint": f"unix://{self._socket}",
            "enforceNodeAllocatable": [],
            "failSwapOn": False,
            "imageGCHighThresholdPercent": 100,  # images are imported, and cannot be had again
            "resolvConf": str(self.directory / "pods-resolv.conf"),
            "volumePluginDir": str(self.directory / "volume-plugins"),
        }

    def load(self, image: Image) -> str:
        """Import an image; return by which name pods find it: its repository with the digest."""
        self._run([*self._client(), "images", "import", str(image.archive)])
        # name, media type, digest, ...
        listed = self._run([*self._client(), "images", "list", f"name=={image.name}"]).splitlines()[1].split()
        pinned = f"{image.repository}@{listed[2]}"
        self._run([*self._client(), "images", "tag", "--force", image.name, pinned])
        return pinned

    def kubectl(self, *arguments: str, given: str | None = None) -> str:
        """Run kubectl; return its standard output.

        Args:
            given: its standard input.

        Raises:
            ClusterError: it failed.
        """
        command = [str(self._programs / "kubectl"), "--kubeconfig", str(self.kubeconfig)]
        return self._run([*command, *arguments], given)

    def get(self, *arguments: str, namespace: str = "card-fraud") -> Object:
        """Return an object, or a list of objects, as the API server has it."""
        return json.loads(self.kubectl("--namespace", namespace, "get", "--output", "json", *arguments))

    def apply(self, *objects: Object) -> None:
        """Create or change objects."""
        self.kubectl("apply", "--filename", "-", given=yaml.safe_dump_all(objects))

    def dry_run(self, *objects: Object) -> None:
        """Let the API server check objects as if they were created.

        Raises:
            ClusterError: it refuses one.
        """
        self.kubectl("apply", "--dry-run=server", "--filename", "-", given=yaml.safe_dump_all(objects))

    def wait_for(self, ready: Callable[[], object], what: str, limit_s: float = 600.0) -> None:
        """Wait until a condition is true; on a failure say what runs.

        Raises:
            ClusterError: it did not become true.
        """
        patience = Patience(limit_s, POLL_S)
        while not ready():
            patience.wait(lambda: ClusterError(f"{what} did not come true:\n{self.state()}"))

    def state(self) -> str:
        """All pods, and the last events."""
        pods = self.kubectl("get", "pods", "--all-namespaces", "--output", "wide")
        events = self.kubectl("get", "events", "--all-namespaces", "--sort-by", ".lastTimestamp")
        return pods + "\n".join(events.splitlines()[-30:])

    def _client(self) -> list[str]:
        return ["ctr", "--address", self._socket, "--namespace", "k8s.io"]

    def _ctr(self, *arguments: str) -> int:
        return subprocess.run([*self._client(), *arguments], capture_output=True).returncode

    def _asks(self, *arguments: str) -> bool:
        with suppress(ClusterError):
            self.kubectl(*arguments)
            return True
        return False

    def _run(self, command: list[str], given: str | None = None) -> str:
        done = subprocess.run(command, input=given, capture_output=True, text=True)
        if done.returncode:
            raise ClusterError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")
        return done.stdout


def _finds_services() -> bool:
    with suppress(OSError):
        return bool(socket.getaddrinfo("kubernetes.default.svc", 443))
    return False
