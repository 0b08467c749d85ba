"""The part of kustomize that manifests/ uses, since the oldest supported kubectl cannot build a kustomization of folders."""
import os, re
from pathlib import Path

from helm_python import values_from_yaml

MANIFESTS = Path(__file__).resolve().parent.parent / "manifests"
# Items of these lists are merged by a key.
MERGE_KEYS = {"containers": "name", "env": "name", "volumes": "name", "volumeMounts": "mountPath"}


def parse(text):
    """The objects of a YAML file. Helm decodes YAML like kubectl."""
    documents = map(values_from_yaml, re.split(r"^---$", text, flags=re.M))
    return [document for document in documents if document]


def read(path):
    return (MANIFESTS / path).read_text(encoding="utf-8")


def identity(made):
    metadata = made["metadata"]
    return made["kind"], metadata.get("namespace", ""), metadata["name"]


def keyed(objects):
    """The objects by kind, namespace and name, each of which must be unique."""
    by_identity = {identity(made): made for made in objects}
    assert len(by_identity) == len(objects), "an object exists twice"
    return by_identity


def build(folder):
    """The objects of a kustomization."""
    kustomization = values_from_yaml(read(f"{folder}/kustomization.yaml"))
    objects = {}
    for entry in kustomization["resources"]:
        path = os.path.normpath(f"{folder}/{entry}")
        objects |= build(path) if (MANIFESTS / path).is_dir() else keyed(parse(read(path)))
    for generator in kustomization.get("configMapGenerator", []):
        metadata = {"name": generator["name"], "namespace": kustomization["namespace"], "labels": kustomization["generatorOptions"]["labels"]}
        data = {file: read(f"{folder}/{file}") for file in generator["files"]}
        objects |= keyed([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}])
    for patch in kustomization.get("patches", []):
        text = patch["patch"] if "patch" in patch else read(f"{folder}/{patch['path']}")
        apply_patch(objects, patch.get("target"), text)
    return objects


def apply_patch(objects, target, text):
    if target is None:
        for patch in parse(text):
            if patch.pop("$patch", None) == "delete":
                del objects[identity(patch)]
            else:
                merge(objects[identity(patch)], patch)
        return
    selected = [made for made in objects.values() if is_selected(made, target)]
    assert selected, f"no object is {target}"
    for operation in values_from_yaml(f"operations:\n{text}")["operations"]:
        for made in selected:
            set_path(made, operation)


def is_selected(made, target):
    group = made["apiVersion"].rpartition("/")[0]
    found = {"group": group, "kind": made["kind"], "name": made["metadata"]["name"]}
    return all(found[key] == value for key, value in target.items())


def set_path(made, operation):
    """Carries out an operation of a JSON patch that sets a field."""
    *parents, field = operation["path"].split("/")[1:]
    for parent in parents:
        made = made[int(parent) if isinstance(made, list) else parent]
    assert operation["op"] == ("replace" if field in made else "add"), operation
    made[field] = operation["value"]


def merge(base, patch):
    """Merges a strategic merge patch into an object."""
    for field, value in patch.items():
        own = base.get(field)
        if isinstance(value, dict) and isinstance(own, dict):
            merge(own, value)
        elif field in MERGE_KEYS and own:
            merge_list(own, value, MERGE_KEYS[field])
        else:
            base[field] = value


def merge_list(base, patch, key):
    own = {item[key]: item for item in base}
    for item in patch:
        if item[key] in own:
            merge(own[item[key]], item)
        else:
            base.append(item)
