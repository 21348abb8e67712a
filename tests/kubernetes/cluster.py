"""A Kubernetes control plane and one node, on loopback, with folders of their own.

The caller runs in namespaces of its own for mounts and the network (`unshare --mount --net`). The kubelet's usual folders
are mounts there, and pods are at a bridge there, so all mounts and devices end with the namespaces. What else the node
makes (processes, cgroups) is removed by `Cluster.stop`.
"""

import contextlib
import glob
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import tarfile
import tempfile
import threading
import time
import urllib.error
import urllib.request

NODE = "node"
TOKEN = "sidelane-test"
SUBNET = "10.88.0.0/24"
NODE_ADDRESS = "10.89.0.1"
# The node at the bridge of its pods.
GATEWAY = "10.88.0.1"
# Address of the API server for pods, which is the first of the services' addresses.
SERVICES, API_SERVICE = "127.64.0.0/24", ("127.64.0.1", 443)
# Folders with fixed names: of the kubelet's device plugins, of pods' logs, of containerd's shims, of recordings.
FOLDERS = ["/var/lib/kubelet", "/var/log/pods", "/var/log/containers", "/run/containerd", "/var/lib/sidelane"]
# Until a step of the machine counts as failed.
DEADLINE_S = 120

PAUSE = "#include <unistd.h>\nint main(void) { for (;;) pause(); }\n"


class Failure(Exception):
    """A test that failed, with the reason."""


class Skipped(Exception):
    """A test that cannot run here, with the reason."""


def wait_until(what, condition, seconds=DEADLINE_S):
    """Waits until `condition` returns something true, and returns that. Missing parts of an answer count as false."""
    began = time.monotonic()
    last = None
    while time.monotonic() - began < seconds:
        try:
            found = condition()
            if found:
                return found
        except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
            last = error
        time.sleep(0.05)
    raise Failure(f"{what}: not within {seconds} s" + (f" ({last})" if last else ""))


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def is_listening(address):
    """Connects to the path of a socket, or to (host, port)."""
    with socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET) as found:
        found.connect(address)
        return True


def forward(address, target):
    """Passes the connections at an address on to a server, until this process ends."""
    server = socket.create_server(address)

    def copy_bytes(source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
        # The other direction ends, too.
        for one in [source, sink]:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def accept():
        while True:
            client, _ = server.accept()
            try:
                upstream = socket.create_connection(target)
            except OSError:
                client.close()
                continue
            for pair in [(client, upstream), (upstream, client)]:
                threading.Thread(target=copy_bytes, args=pair, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


class Cluster:
    def __init__(self, binaries, cache):
        self.binaries = binaries
        self.bin = f"{cache}/bin"
        self.debian = f"{cache}/debian"
        self.path = ":".join([f"{self.debian}/usr/bin", f"{self.debian}/usr/sbin", os.environ["PATH"]])
        self.dir = tempfile.mkdtemp(prefix="sidelane-k8s-")
        self.processes = {}
        self.commands = {}
        self.made_folders = []
        os.makedirs(f"{self.dir}/logs")

    # ---- Processes ----

    def start(self, name, *command):
        """Starts a process, or starts it again with the command that it had."""
        command = [str(part) for part in command] or self.commands[name]
        self.commands[name] = command
        log = open(f"{self.dir}/logs/{name}", "ab")
        environment = {**os.environ, "PATH": self.path, "ETCD_UNSUPPORTED_ARCH": ""}
        self.processes[name] = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
        )
        return self.processes[name]

    def end(self, name, how=signal.SIGTERM):
        """Ends a process that was started here."""
        process = self.processes.pop(name, None)
        if process is None or process.poll() is not None:
            return
        process.send_signal(how)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def log(self, name):
        with open(f"{self.dir}/logs/{name}", errors="replace") as log:
            return log.read()

    # ---- Start ----

    def run(self):
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        # A kubelet refuses an address of 127.0.0.0/8, and without one the API server does not find it.
        subprocess.run(["ip", "address", "add", f"{NODE_ADDRESS}/32", "dev", "lo"], check=True)
        for folder in FOLDERS:
            if not os.path.isdir(folder):
                os.makedirs(folder)
                self.made_folders.append(folder)
            own = self.dir + folder
            os.makedirs(own)
            subprocess.run(["mount", "--bind", own, folder], check=True)
        self.start_control_plane()
        self.start_node()
        self.make_images()
        wait_until("the node is ready", self.is_node_ready)

    def start_control_plane(self):
        etcd, peer, self.port = free_port(), free_port(), free_port()
        self.start(
            "etcd", "etcd", "--data-dir", f"{self.dir}/etcd", "--unsafe-no-fsync",
            "--listen-client-urls", f"http://127.0.0.1:{etcd}", "--advertise-client-urls", f"http://127.0.0.1:{etcd}",
            "--listen-peer-urls", f"http://127.0.0.1:{peer}", "--initial-advertise-peer-urls", f"http://127.0.0.1:{peer}",
            "--initial-cluster", f"default=http://127.0.0.1:{peer}",
        )
        key, certs, tokens = f"{self.dir}/service-accounts.key", f"{self.dir}/certs", f"{self.dir}/tokens"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        self.write("tokens", f'{TOKEN},admin,admin,"system:masters"\n')
        self.start(
            "kube-apiserver", f"{self.bin}/kube-apiserver", "--etcd-servers", f"http://127.0.0.1:{etcd}",
            "--bind-address", "127.0.0.1", "--advertise-address", "127.0.0.1", "--secure-port", self.port,
            "--cert-dir", certs, "--token-auth-file", tokens, "--authorization-mode", "Node,RBAC",
            "--service-account-issuer", "https://sidelane.test", "--service-account-key-file", key,
            "--service-account-signing-key-file", key, "--service-cluster-ip-range", SERVICES,
            "--endpoint-reconciler-type", "none", "--allow-privileged", "--kubelet-preferred-address-types", "InternalIP",
        )
        self.kubeconfig = self.write("kubeconfig", json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {
                "server": f"https://127.0.0.1:{self.port}", "insecure-skip-tls-verify": True}}],
            "users": [{"name": "admin", "user": {"token": TOKEN}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
        }))
        wait_until("the API server is ready", lambda: self.get_text("/readyz") == "ok")
        # There is no kube-proxy. Pods in the node's own network reach the API server like this.
        forward(API_SERVICE, ("127.0.0.1", self.port))
        for name in ["kube-scheduler", "kube-controller-manager"]:
            extra = []
            if name == "kube-controller-manager":
                extra = ["--service-account-private-key-file", key, "--root-ca-file", f"{certs}/apiserver.crt"]
            self.start(
                name, f"{self.bin}/{name}", "--kubeconfig", self.kubeconfig, "--leader-elect=false",
                "--bind-address", "127.0.0.1", "--secure-port", free_port(), "--cert-dir", f"{self.dir}/{name}",
                "--authentication-skip-lookup", *extra,
            )

    def start_node(self):
        cni = f"{self.dir}/cni"
        os.makedirs(cni)
        addresses = {"type": "host-local", "subnet": SUBNET, "dataDir": f"{self.dir}/addresses"}
        bridge = {"type": "bridge", "bridge": "pods", "isGateway": True, "ipam": addresses}
        self.write("cni/10-bridge.conflist", json.dumps({"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]}))
        runc = shutil.which("runc", path=self.path)
        cri = '[plugins."io.containerd.grpc.v1.cri"'
        self.write("containerd.toml", f"""
            version = 2
            root = "{self.dir}/containerd/root"
            state = "{self.dir}/containerd/state"
            [grpc]
            address = "/run/containerd/containerd.sock"
            [plugins."io.containerd.internal.v1.opt"]
            path = "{self.dir}/containerd/opt"
            {cri}]
            sandbox_image = "docker.io/library/pause:1"
            restrict_oom_score_adj = true
            disable_apparmor = true
            stream_server_address = "127.0.0.1"
            {cri}.cni]
            bin_dir = "{self.debian}/usr/lib/cni"
            conf_dir = "{cni}"
            {cri}.containerd.runtimes.runc]
            runtime_type = "io.containerd.runc.v2"
            {cri}.containerd.runtimes.runc.options]
            BinaryName = "{runc}"
            """)
        self.start("containerd", "containerd", "--config", f"{self.dir}/containerd.toml")
        wait_until("containerd is ready", lambda: self.ctr("version").returncode == 0)
        self.write("kubelet.json", json.dumps({
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "clusterDomain": "cluster.local",
            "address": NODE_ADDRESS, "port": free_port(), "healthzPort": 0,
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs", "failCgroupV1": False, "failSwapOn": False, "makeIPTablesUtilChains": False,
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            # CPU 0 is reserved. So a service has CPU 1 of its own, and all other pods run on CPU 0, the lane beside it.
            "cpuManagerPolicy": "static", "systemReserved": {"cpu": "500m"}, "enforceNodeAllocatable": ["pods"],
            "evictionHard": {"memory.available": "1Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            "imageGCHighThresholdPercent": 100,
            "nodeStatusUpdateFrequency": "2s", "syncFrequency": "5s",
        }))
        self.start(
            "kubelet", f"{self.bin}/kubelet", "--kubeconfig", self.kubeconfig, "--config", f"{self.dir}/kubelet.json",
            "--hostname-override", NODE, "--node-ip", NODE_ADDRESS,
        )

    # ---- Images ----

    def make_images(self):
        """Imports images of programs of this machine."""
        pause = f"{self.dir}/pause"
        self.write("pause.c", PAUSE)
        subprocess.run(["gcc", "-static", "-O", "-o", pause, pause + ".c"], check=True)
        busybox = f"{self.debian}/bin/busybox"
        self.make_image("pause:1", {"pause": pause}, ["/pause"])
        tools = ["busybox", "sh", "sleep", "seq", "sha256sum"]
        self.make_image("busybox:1", {f"bin/{name}": busybox for name in tools}, ["/bin/sh"])
        # Without a configuration, redis answers no other machine.
        command = ["/bin/redis-server", "--protected-mode", "no", "--save", ""]
        self.make_image("redis:8", {"bin/redis-server": shutil.which("redis-server")}, command)
        programs = {f"bin/{name}": f"{self.binaries}/{name}" for name in ["sidelane", "sidelane-kube"]}
        programs["bin/tar"] = busybox
        self.make_image("sidelane:0.1.0", programs, [])

    def make_image(self, name, files, command, folders=None, environment=()):
        """Imports an image with these files and folders, and the libraries that they are linked with."""
        short = name.split(":")[0].replace("/", "-")
        tree = f"{self.dir}/image-{short}"
        for path in ["tmp", "proc", "sys", "dev", "etc"]:
            os.makedirs(f"{tree}/{path}", exist_ok=True)
        linked = list(files.values())
        for path, source in files.items():
            copy(source, f"{tree}/{path}")
        for path, source in (folders or {}).items():
            shutil.copytree(source, f"{tree}/{path}", ignore_dangling_symlinks=True)
            linked += glob.glob(f"{source}/**/*.so*", recursive=True)
        libraries = subprocess.run(["ldd", *linked], capture_output=True, text=True).stdout.split()
        for library in {word for word in libraries if word.startswith("/") and not word.endswith(":")}:
            copy(library, tree + library)
        layer = f"{self.dir}/{short}.layer.tar"
        with tarfile.open(layer, "w") as tar:
            tar.add(tree, arcname=".")
        shutil.rmtree(tree)
        digest = subprocess.run(["sha256sum", layer], capture_output=True, text=True, check=True).stdout.split()[0]
        config = {
            "architecture": "amd64", "os": "linux",
            "config": {"Entrypoint": command, "Env": ["PATH=/bin:/usr/bin", *environment]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        }
        tag = f"docker.io/{name}" if "/" in name else f"docker.io/library/{name}"
        manifest = [{"Config": "config.json", "RepoTags": [tag], "Layers": ["layer.tar"]}]
        image = f"{self.dir}/{short}.tar"
        with tarfile.open(image, "w") as tar:
            tar.add(layer, arcname="layer.tar")
            for file, content in [("config.json", config), ("manifest.json", manifest)]:
                tar.add(self.write(f"{short}.{file}", json.dumps(content)), arcname=file)
        imported = self.ctr("-n", "k8s.io", "images", "import", image)
        os.remove(layer)
        os.remove(image)
        if imported.returncode != 0:
            raise Failure(f"the image {name} cannot be imported: {imported.stderr}")

    def ctr(self, *arguments):
        command = ["ctr", "-a", "/run/containerd/containerd.sock", *arguments]
        return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PATH": self.path})

    # ---- Questions ----

    def get_text(self, path):
        request = urllib.request.Request(f"https://127.0.0.1:{self.port}{path}")
        request.add_header("Authorization", f"Bearer {TOKEN}")
        context = ssl._create_unverified_context()
        with urllib.request.urlopen(request, timeout=10, context=context) as answer:
            return answer.read().decode()

    def get(self, path):
        return json.loads(self.get_text(path))

    def node(self):
        return self.get(f"/api/v1/nodes/{NODE}")

    def is_node_ready(self):
        return any(one["type"] == "Ready" and one["status"] == "True" for one in self.node()["status"]["conditions"])

    def allocatable(self, resource):
        return int(self.node()["status"]["allocatable"].get(resource, "-1"))

    def pod(self, name):
        return self.get(f"/api/v1/namespaces/default/pods/{name}")

    def phase(self, name):
        return self.pod(name)["status"]["phase"]

    def kubectl(self, *arguments, text=None, check=True):
        command = [f"{self.bin}/kubectl", "--kubeconfig", self.kubeconfig, *arguments]
        ended = subprocess.run(command, input=text, capture_output=True, text=True)
        if check and ended.returncode != 0:
            raise Failure(f"kubectl {' '.join(arguments)}: {ended.stderr.strip()}")
        return ended.stdout

    def create(self, *objects):
        for one in objects:
            self.kubectl("apply", "-f", "-", text=json.dumps(one))

    def delete_pod(self, name):
        self.kubectl("delete", "pod", name, "--grace-period=1", "--wait=false", "--ignore-not-found")

        def is_gone():
            try:
                self.pod(name)
            except urllib.error.HTTPError as error:
                return error.code == 404

        wait_until(f"pod {name} is gone", is_gone)

    def write(self, name, text):
        path = f"{self.dir}/{name}"
        with open(path, "w") as file:
            file.write(text)
        return path

    # ---- End ----

    def stop(self):
        """Ends all processes and containers, and removes all cgroups. Returns what is left."""
        with contextlib.suppress(Exception):
            if "kubelet" in self.processes and "kube-apiserver" in self.processes:
                self.kubectl(
                    "delete", "daemonsets,pods", "--all", "-A", "--grace-period=0", "--force", "--wait=false", check=False
                )
                wait_until("pods are gone", lambda: not pod_groups(), 30)
        for name in reversed(list(self.processes)):
            self.end(name)
        for pid in self.shims():
            # A shim ends its containers' processes neither at SIGTERM nor when it is killed.
            for child in descendants(pid) + [pid]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
        wait_until("the shims are gone", lambda: not self.shims(), 10)
        left = remove_groups()
        for folder in reversed(FOLDERS):
            while subprocess.run(["umount", folder], capture_output=True).returncode == 0:
                pass
        for mount in sorted(mounts_below(self.dir), reverse=True):
            subprocess.run(["umount", mount], capture_output=True)
        for folder in self.made_folders:
            with contextlib.suppress(OSError):
                os.rmdir(folder)
        left += mounts_below(self.dir)
        if not left:
            shutil.rmtree(self.dir, ignore_errors=True)
        return left

    def shims(self):
        """Returns the shims of this cluster's containers: those that containerd's own folders are named to."""
        found = []
        for path in glob.glob("/proc/[0-9]*/cmdline"):
            with contextlib.suppress(OSError), open(path, "rb") as file:
                words = file.read().split(b"\0")
                is_shim = words[0].endswith(b"containerd-shim-runc-v2")
                if is_shim and same_namespace(int(path.split("/")[2])):
                    found.append(int(path.split("/")[2]))
        return found


def same_namespace(pid):
    return os.readlink(f"/proc/{pid}/ns/mnt") == os.readlink("/proc/self/ns/mnt")


def descendants(pid):
    found = []
    for path in glob.glob(f"/proc/{pid}/task/*/children"):
        with contextlib.suppress(OSError), open(path) as file:
            for child in map(int, file.read().split()):
                found += descendants(child) + [child]
    return found


def copy(source, target):
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if not os.path.exists(target):
        shutil.copy(os.path.realpath(source), target)


def mounts_below(folder):
    with open("/proc/self/mountinfo") as file:
        paths = [line.split()[4] for line in file]
    return [path for path in paths if path.startswith(folder + "/")]


def node_groups():
    """Returns the kubelet's uppermost cgroups, in all hierarchies."""
    return glob.glob("/sys/fs/cgroup/kubepods") + glob.glob("/sys/fs/cgroup/*/kubepods")


def pod_groups():
    return [path for group in node_groups() for path in glob.glob(f"{group}/**/pod*", recursive=True)]


def remove_groups():
    """Removes the kubelet's cgroups. Returns those that are left."""
    for group in node_groups():
        for folder, _, _ in os.walk(group, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)
    return node_groups()
