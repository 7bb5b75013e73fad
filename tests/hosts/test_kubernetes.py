"""The samples for Kubernetes: their schemas, the security of their pods, and the launcher of MPI jobs.

kubernetes-validate knows the resources of Kubernetes itself, and kubeflow-trainer-api those of Trainer. No package
knows an MPIJob: its pod templates are validated, and its own keys are compared with those of the operator's API.
"""

from __future__ import annotations

import copy
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from kubeflow_trainer_api import models as trainer

from genie.config.hosts import load_hosts

HOSTS = Path(__file__).resolve().parents[2] / "hosts"
FOLDER = HOSTS / "kubernetes"
MANIFESTS = sorted(FOLDER.glob("*.yaml"))
SCRIPTS = sorted([*HOSTS.glob("*.sh"), *HOSTS.glob("*.sbatch"), *HOSTS.glob("*.nhc"), *FOLDER.glob("*.sh")])
CORE = ("v1", "batch/v1")
Manifest = dict[str, Any]


def resources(path: Path) -> list[Manifest]:
    return list(yaml.safe_load_all(path.read_text()))


RESOURCES = [(path.name, each) for path in MANIFESTS for each in resources(path)]


def ids(value: Any) -> str | None:
    return value["kind"] if isinstance(value, dict) else None


def kind(name: str) -> Manifest:
    return next(each for _, each in RESOURCES if each["kind"] == name)


def replicas(job: Manifest) -> dict[str, Manifest]:
    specs: dict[str, Manifest] = job["spec"]["mpiReplicaSpecs"]
    return specs


def pod_templates(resource: Manifest) -> Iterator[Manifest]:
    match resource["kind"]:
        case "MPIJob":
            yield from (each["template"] for each in replicas(resource).values())
        case "ClusterTrainingRuntime":
            jobs = resource["spec"]["template"]["spec"]["replicatedJobs"]
            yield from (each["template"]["spec"]["template"] for each in jobs)
        case "Job":
            yield resource["spec"]["template"]


def embedded(resource: Manifest) -> Iterator[Manifest]:
    """The parts of a custom resource that are of Kubernetes itself, as resources of their own."""
    name = {"name": "embedded"}
    if resource["kind"] == "ClusterTrainingRuntime":
        for each in resource["spec"]["template"]["spec"]["replicatedJobs"]:
            yield {"apiVersion": "batch/v1", "kind": "Job", "metadata": name, "spec": each["template"]["spec"]}
    for template in pod_templates(resource):
        yield {"apiVersion": "v1", "kind": "PodTemplate", "metadata": name, "template": template}


TEMPLATES = [template for _, resource in RESOURCES for template in pod_templates(resource)]
CONTAINERS = [
    each
    for template in TEMPLATES
    for each in (*template["spec"]["containers"], *template["spec"].get("initContainers", []))
]


# -- schemas ----------------------------------------------------------------------------------------------------------


def validate(resource: Manifest) -> None:
    kubernetes_validate.validate(resource, kubernetes_validate.latest_version(), strict=True)


def test_the_samples_are_there() -> None:
    kinds = {(name, each["apiVersion"], each["kind"]) for name, each in RESOURCES}
    assert kinds == {
        ("mpijob.yaml", "kubeflow.org/v2beta1", "MPIJob"),
        ("preflight.yaml", "batch/v1", "Job"),
        ("runs.yaml", "v1", "PersistentVolumeClaim"),
        ("trainer.yaml", "trainer.kubeflow.org/v1alpha1", "ClusterTrainingRuntime"),
        ("trainer.yaml", "trainer.kubeflow.org/v1alpha1", "TrainJob"),
    }
    assert len(TEMPLATES) == 5


@pytest.mark.parametrize(("name", "resource"), RESOURCES, ids=ids)
def test_resources_of_kubernetes_have_its_schema(name: str, resource: Manifest) -> None:
    parts = [resource] if resource["apiVersion"] in CORE else list(embedded(resource))
    assert parts or resource["kind"] == "TrainJob", name
    for part in parts:
        validate(part)


def test_a_wrong_pod_is_found() -> None:
    part = copy.deepcopy(next(embedded(kind("MPIJob"))))
    part["template"]["spec"]["containers"][0]["imagePull"] = "Always"
    with pytest.raises(kubernetes_validate.ValidationError):
        validate(part)


@pytest.mark.parametrize("name", ["ClusterTrainingRuntime", "TrainJob"])
def test_resources_of_trainer_have_its_schema(name: str) -> None:
    model = getattr(trainer, f"TrainerV1alpha1{name}")
    resource = kind(name)
    assert model.from_dict(resource).to_dict() == resource, "the model drops keys that it does not know"
    wrong = copy.deepcopy(resource)
    wrong["spec"]["mlpolicy"] = {}
    assert model.from_dict(wrong).to_dict() != wrong


# Keys of the API kubeflow.org/v2beta1 outside its pod templates, and their values where only some are allowed.
MPI_KEYS = {
    "launcherCreationPolicy", "mpiImplementation", "mpiReplicaSpecs", "runLauncherAsWorker", "runPolicy",
    "slotsPerWorker", "sshAuthMountPath",
}  # fmt: skip
RUN_POLICY = {
    "activeDeadlineSeconds", "backoffLimit", "cleanPodPolicy", "managedBy", "schedulingPolicy", "suspend",
    "ttlSecondsAfterFinished",
}  # fmt: skip
CHOICES = {
    "mpiImplementation": {"OpenMPI", "Intel", "MPICH"},
    "launcherCreationPolicy": {"AtStartup", "WaitForWorkersReady"},
}


def test_an_mpi_job_has_keys_of_the_operator_only() -> None:
    job = kind("MPIJob")
    spec = job["spec"]
    assert set(job) == {"apiVersion", "kind", "metadata", "spec"}
    assert set(spec) <= MPI_KEYS
    assert set(spec["runPolicy"]) <= RUN_POLICY
    assert spec["runPolicy"]["cleanPodPolicy"] in ("None", "Running", "All")
    assert all(spec[name] in allowed for name, allowed in CHOICES.items())
    assert set(replicas(job)) == {"Launcher", "Worker"}
    assert replicas(job)["Launcher"]["replicas"] == 1
    for each in replicas(job).values():
        assert set(each) <= {"replicas", "restartPolicy", "template"}
        assert each["restartPolicy"] in ("Never", "OnFailure")
        assert "restartPolicy" not in each["template"]["spec"], "the operator overrides it, with a warning"


# -- pods -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template["spec"]["containers"][0]["name"])
def test_pods_meet_the_restricted_standard(template: Manifest) -> None:
    spec = template["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] == 1000
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["automountServiceAccountToken"] is False
    assert "hostNetwork" not in spec
    volumes = {volume["name"] for volume in spec["volumes"]}
    for each in (*spec["containers"], *spec.get("initContainers", [])):
        context = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        assert each["securityContext"] == context
        assert {mount["name"] for mount in each.get("volumeMounts", [])} <= volumes
        assert each["resources"]["requests"]
        assert "memory" in each["resources"]["limits"]


def test_images_are_placeholders() -> None:
    assert {each["image"] for each in CONTAINERS} == {"genie:latest", "training:latest"}


def test_workers_are_alike_and_have_a_node_each() -> None:
    """The volumes and the keys are where launch.sh and sshd look for them."""
    jobs = kind("ClusterTrainingRuntime")["spec"]["template"]["spec"]["replicatedJobs"]
    under_trainer = next(each["template"]["spec"]["template"] for each in jobs if each["name"] == "node")
    under_operator = replicas(kind("MPIJob"))["Worker"]["template"]
    one, other = (copy.deepcopy(each["spec"]) for each in (under_trainer, under_operator))
    one.pop("restartPolicy")
    one["containers"][0]["name"] = other["containers"][0]["name"]
    assert one == other
    selector = one["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]
    assert selector["topologyKey"] == "kubernetes.io/hostname"
    assert selector["labelSelector"]["matchLabels"] == under_operator["metadata"]["labels"]
    assert under_trainer["metadata"]["labels"] == under_operator["metadata"]["labels"]
    keys = {
        kind("MPIJob")["spec"]["sshAuthMountPath"],
        kind("ClusterTrainingRuntime")["spec"]["mlPolicy"]["mpi"]["sshAuthMountPath"],
    }
    named = {word.rpartition("=")[2].rpartition("/")[0] for word in one["containers"][0]["args"] if "/.ssh/" in word}
    assert keys == named
    assert one["containers"][0]["command"][-1] == "2222"


def test_launchers_run_the_script_and_do_not_try_again() -> None:
    launchers = [each for each in CONTAINERS if "launch.sh" in str(each.get("command"))]
    assert [each["command"] for each in launchers] == [["bash", "/etc/genie/launch.sh"]] * 2
    assert kind("TrainJob")["spec"]["trainer"]["args"] == launchers[0]["args"]
    assert kind("MPIJob")["spec"]["runPolicy"]["backoffLimit"] == 0
    jobs = kind("ClusterTrainingRuntime")["spec"]["template"]["spec"]["replicatedJobs"]
    assert all(each["template"]["spec"]["backoffLimit"] == 0 for each in jobs)
    assert {each["template"]["spec"]["template"]["spec"]["containers"][0]["name"] for each in jobs} == {"node"}


def test_a_preflight_that_fails_leaves_its_pod() -> None:
    job = kind("Job")["spec"]
    assert job["backoffLimit"] == 0
    assert job["template"]["spec"]["restartPolicy"] == "Never"
    check = job["template"]["spec"]["initContainers"][0]
    assert check["command"] == ["bash", "/etc/genie/health-check.sh", "--report"]
    assert check["terminationMessagePolicy"] == "FallbackToLogsOnError"


@pytest.mark.parametrize("path", [path for path in MANIFESTS if path.name != "runs.yaml"], ids=lambda path: path.name)
def test_each_manifest_says_how_to_make_its_config_map(path: Path) -> None:
    line = re.search(r"kubectl create configmap genie-scripts(.*)", path.read_text())
    assert line is not None
    files = re.findall(r"--from-file=(\S+)", line[1])
    assert files
    assert all((HOSTS.parent / name).is_file() for name in files)
    used = set(re.findall(r"/etc/genie/(\S+\.sh)", path.read_text()))
    assert used <= {Path(name).name for name in files}


# -- node-problem-detector --------------------------------------------------------------------------------------------


def seconds(text: str) -> int:
    return int(text[:-1]) * {"s": 1, "m": 60}[text[-1]]


def test_the_monitor_keeps_the_rules_that_node_problem_detector_checks() -> None:
    monitor = json.loads((FOLDER / "node-problem-detector.json").read_text())
    settings = monitor["pluginConfig"]
    assert set(monitor) == {"plugin", "pluginConfig", "source", "metricsReporting", "conditions", "rules"}
    assert monitor["plugin"] == "custom"
    assert settings["max_output_length"] == 80
    assert seconds(settings["invoke_interval"]) > 0
    conditions = {each["type"] for each in monitor["conditions"]}
    for rule in monitor["rules"]:
        assert set(rule) == {"type", "condition", "reason", "path", "args", "timeout"}
        assert rule["type"] == "permanent"
        assert rule["condition"] in conditions
        assert 25 < seconds(rule["timeout"]) <= seconds(settings["timeout"]), "GENIE_LIMIT_S and 5 s to kill"
        assert rule["path"].startswith("/opt/genie/hosts/")
        assert (HOSTS / rule["path"].removeprefix("/opt/genie/hosts/")).is_file()


# -- scripts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_shell(script: Path) -> None:
    done = subprocess.run(["bash", "-n", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    if script.suffix != ".nhc":
        assert script.read_text().startswith("#!/bin/bash\n")
        assert script.stat().st_mode & 0o111


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
@pytest.mark.usefixtures("shellcheck")
def test_shellcheck_finds_nothing(script: Path) -> None:
    # SC1090: the path of a configuration file is not constant.
    line = ["shellcheck", "--severity=warning", "--exclude=SC1090", str(script)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


# -- the launcher -----------------------------------------------------------------------------------------------------

FAKES = {
    "getent": 'case "$2" in genie-worker-*) echo "10.1.0.${2: -1} STREAM $2" ;; *) exit 2 ;; esac',
    "ssh": 'echo "$*" >> ssh.log; echo "3: net1    inet 192.168.9.7/24 brd 192.168.9.255 scope global net1"',
    "genie": 'echo "$*"; echo "$HYDRA_LAUNCHER_EXTRA_ARGS"; exit 4',
    "sleep": "exit 0",
}


def launch(folder: Path, hostfile: str, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    tools = folder / "tools"
    tools.mkdir()
    for name, body in FAKES.items():
        (tools / name).write_text(f"#!/bin/bash\n{body}\n")
        (tools / name).chmod(0o755)
    (folder / "hostfile").write_text(hostfile)
    variables = {
        "PATH": f"{tools}:/usr/bin:/bin",
        "GENIE_HOSTFILE": str(folder / "hostfile"),
        "GENIE_OUT": str(folder / "runs" / "one"),
        "GENIE_WAIT_S": "0",
    }
    return subprocess.run(
        ["bash", FOLDER / "launch.sh", *words], cwd=folder, env={**variables, **environment}, capture_output=True,
        text=True, check=False, timeout=60,
    )  # fmt: skip


@pytest.mark.parametrize(
    "hostfile",
    ["genie-worker-0:1\ngenie-worker-1:2\n", "genie-worker-0 slots=1\ngenie-worker-1 slots=2\n\n"],
    ids=["MPICH", "OpenMPI"],
)
def test_the_launcher_writes_a_hosts_file_and_ends_with_the_code_of_genie(tmp_path: Path, hostfile: str) -> None:
    done = launch(tmp_path, hostfile, "validate", "--rate", "1Gb/s")
    assert done.returncode == 4, done.stderr
    words, ssh = done.stdout.splitlines()
    runs = tmp_path / "runs"
    assert words == f"validate --rate 1Gb/s --hosts {runs}/one.hosts.toml --out {runs}/one"
    assert ssh.startswith("-p 2222 ")
    hosts = load_hosts(runs / "one.hosts.toml")
    assert [(place.rank, place.host, place.address) for place in hosts.places] == [
        (0, "genie-worker-0", "10.1.0.0"),
        (1, "genie-worker-1", "10.1.0.1"),
        (2, "genie-worker-1", "10.1.0.1"),
    ]


def test_the_launcher_takes_addresses_of_a_second_network(tmp_path: Path) -> None:
    done = launch(tmp_path, "genie-worker-7:1\n", "check", GENIE_INTERFACE="net1")
    assert done.returncode == 4, done.stderr
    assert 'address = "192.168.9.7"' in (tmp_path / "runs" / "one.hosts.toml").read_text()
    told = (tmp_path / "ssh.log").read_text()
    assert told.endswith(" genie-worker-7 ip -4 -o address show dev net1\n")


def test_the_launcher_stops_at_a_worker_without_address(tmp_path: Path) -> None:
    done = launch(tmp_path, "unknown:1\n", "validate")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "launch.sh: no IPv4 address for unknown\n"


def test_the_launcher_needs_the_file_of_an_operator(tmp_path: Path) -> None:
    done = launch(tmp_path, "", "validate", GENIE_HOSTFILE="/nonexistent/hostfile")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("launch.sh: /nonexistent/hostfile is missing: ")
