"""Tests of the Helm chart: its objects are those of manifests/, and it rejects wrong values."""
import json, unittest

from helm_python import Chart, HelmValuesError, lint

import kustomize

FOLDER = kustomize.MANIFESTS.parent / "charts/di-orchestrator"
CHART = Chart.load(FOLDER)
SYSTEM = "di-system"
KEEP = {"helm.sh/resource-policy": "keep"}
ON = {"enabled": True}


def render(namespace=SYSTEM, **values):
    """The objects of the chart. Definitions have no annotation, so that they equal those of the manifests."""
    values["crds"] = {"keep": False} | values.get("crds", {})
    return objects_of(values, namespace)


def objects_of(values, namespace=SYSTEM):
    files = CHART.render(values, name="release", namespace=namespace)
    return kustomize.keyed([made for path, text in files.items() if path.endswith(".yaml") for made in kustomize.parse(text)])


def notes(namespace=SYSTEM, **values):
    return CHART.render(values, name="release", namespace=namespace)["di-orchestrator/templates/NOTES.txt"]


def build(*folders):
    """The objects of overlays without the namespace, which Helm creates."""
    objects = {key: made for folder in folders for key, made in kustomize.build(folder).items()}
    objects.pop(("Namespace", "", SYSTEM), None)
    return objects


def pod_of(objects):
    deployment, = (made for made in objects.values() if made["kind"] == "Deployment")
    return deployment["spec"]["template"]["spec"]


def containers_of(objects):
    return {container["name"]: container for container in pod_of(objects)["containers"]}


def with_gang(objects, scheduler):
    """Adds a gang scheduler as `kubectl di install --gang-scheduler` does."""
    containers_of(objects)["manager"]["env"].append({"name": "GANG_SCHEDULER", "value": scheduler})
    return objects


def definitions(objects):
    return {key: made for key, made in objects.items() if key[0] == "CustomResourceDefinition"}


class ChartTest(unittest.TestCase):
    maxDiff = 4000

    def assert_same(self, rendered, expected):
        for objects in (rendered, expected):
            # The order of variables does not matter here.
            containers_of(objects)["manager"]["env"].sort(key=lambda variable: variable["name"])
        self.assertEqual(sorted(rendered), sorted(expected))
        for key in rendered:
            self.assertEqual(rendered[key], expected[key], key)

    def test_default_values_render_the_manifests(self):
        expected = kustomize.keyed(kustomize.parse(kustomize.read("install.yaml")))
        del expected["Namespace", "", SYSTEM]
        for definition in definitions(expected).values():
            definition["metadata"]["annotations"] = KEEP
        self.assertEqual(len(definitions(expected)), 2)
        self.assert_same(objects_of({}), expected)

    def test_values_render_overlays(self):
        gang = lambda scheduler, *folders: with_gang(build("default", *folders), scheduler)
        for values, expected in [
            ({}, build("default")),
            ({"certManager": ON}, build("cert-manager")),
            ({"crds": {"celRules": True}}, build("default", "cel")),
            ({"kueue": ON}, build("default", "kueue")),
            ({"monitoring": ON}, build("default", "monitoring")),
            ({"gangScheduler": "volcano"}, gang("volcano", "gang")),
            ({"gangScheduler": "coscheduling:mine"}, gang("coscheduling:mine", "gang")),
            ({"gangScheduler": "kubernetes"}, gang("kubernetes", "gang")),
            # It has no groups.
            ({"gangScheduler": "yunikorn"}, gang("yunikorn")),
        ]:
            with self.subTest(values):
                self.assert_same(render(**values), expected)

    def test_values_can_be_combined(self):
        rendered = render(certManager=ON, kueue=ON, monitoring=ON, gangScheduler="kai", crds={"celRules": True})
        self.assert_same(rendered, with_gang(build("cert-manager", "cel", "kueue", "monitoring", "gang"), "kai"))

    def test_pods_have_image_and_resources_of_the_values(self):
        image = {"repository": "r:5000/di", "tag": "1@sha256:00", "pullPolicy": "Always", "pullSecrets": ["first", "7"]}
        # A default is removed by null.
        resources = {"requests": {"cpu": "2", "memory": None}, "limits": {"memory": "1Gi", "nvidia.com/gpu": 1}}
        rendered, expected = render(image=image, replicas=3, resources=resources), build("default")
        expected["Deployment", SYSTEM, "di-webhook"]["spec"]["replicas"] = 3
        pod_of(expected)["imagePullSecrets"] = [{"name": "first"}, {"name": "7"}]
        for container in containers_of(expected).values():
            container |= {"image": "r:5000/di:1@sha256:00", "imagePullPolicy": "Always"}
            container["resources"] = {"requests": {"cpu": "2"}, "limits": {"memory": "1Gi", "nvidia.com/gpu": 1}}
        self.assert_same(rendered, expected)

    def test_definitions_can_be_left_out(self):
        expected = build("default")
        for key in definitions(expected):
            del expected[key]
        self.assert_same(render(crds={"install": False, "celRules": True}), expected)

    def test_other_namespace_is_used_everywhere(self):
        # A name of digits must stay a string.
        for namespace in ["team", "123"]:
            values = {"certManager": ON, "kueue": ON, "monitoring": ON, "gangScheduler": "kai"}
            expected = with_gang(build("cert-manager", "kueue", "monitoring", "gang"), "kai")
            # The API documents the namespace of the AggregatorConfig for all jobs.
            own = {key: made for key, made in expected.items() if key not in definitions(expected)}
            own = kustomize.keyed(json.loads(json.dumps(list(own.values())).replace(SYSTEM, namespace)))
            containers_of(own)["manager"]["args"].append(f"--server-url=di-server.{namespace}:8080")
            self.assert_same(render(namespace, **values), definitions(expected) | own)

    def test_notes_warn_of_dangers(self):
        self.assertNotIn("WARNING", notes())
        self.assertIn("kubectl di doctor", notes())
        self.assertIn("WARNING: crds.keep is false", notes(crds={"keep": False}))
        self.assertNotIn("WARNING", notes(crds={"keep": False, "install": False}))
        self.assertIn("yours is di-server.team:8080", notes("team"))

    def test_lint_finds_nothing(self):
        for values in [{}, {"certManager": ON, "kueue": ON, "monitoring": ON, "gangScheduler": "kai", "crds": {"celRules": True}}]:
            report = lint(FOLDER, values, strict=True, namespace=SYSTEM)
            # An icon is recommended as information.
            found = [message for message in report["messages"] if message["severity"] > 1]
            self.assertEqual((report["total_charts_linted"], report["errors"], found), (1, [], []))

    def test_wrong_values_are_rejected_by_name(self):
        for values, message in [
            ({"replica": 3}, "additional properties 'replica' not allowed"),
            ({"replicas": "3"}, "'/replicas': got string, want integer"),
            ({"replicas": None}, "missing property 'replicas'"),
            ({"image": {"tag": 1}}, "'/image/tag': got number, want string"),
            ({"image": {"pullPolicy": "always"}}, "'/image/pullPolicy': value must be one of"),
            ({"image": {"pullSecrets": [{"name": "x"}]}}, "'/image/pullSecrets/0': got object, want string"),
            ({"resources": {"limit": {}}}, "'/resources': additional properties 'limit' not allowed"),
            ({"resources": {"limits": {"cpu": True}}}, "'/resources/limits/cpu': got boolean"),
            ({"crds": {"keep": "yes"}}, "'/crds/keep': got string, want boolean"),
            ({"certManager": True}, "'/certManager': got boolean, want object"),
            ({"kueue": {"enable": True}}, "'/kueue': additional properties 'enable' not allowed"),
            ({"gangScheduler": "vulcano"}, "'/gangScheduler': 'vulcano' does not match pattern"),
            ({"gangScheduler": "coscheduling:"}, "'/gangScheduler': 'coscheduling:' does not match pattern"),
            ({"monitoring": {"enabled": "true"}}, "'/monitoring/enabled': got string, want boolean"),
        ]:
            with self.subTest(values), self.assertRaises(HelmValuesError) as raised:
                objects_of(values)
            self.assertIn(message, str(raised.exception))

    def test_version_is_that_of_the_manifests(self):
        version = build("default")["Deployment", SYSTEM, "di-webhook"]["metadata"]["labels"]["app.kubernetes.io/version"]
        self.assertEqual((CHART.version, CHART.metadata["appVersion"]), (version, version))
