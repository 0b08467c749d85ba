import sys
import unittest
from unittest import mock

HINT = "DIClient needs the native module .*: install the wheel"


@mock.patch.dict(sys.modules, {"di_orchestrator._native": None})
class PurePackageTest(unittest.TestCase):
    """The package without its native module, as copied into an image."""

    def test_import_of_all_names_succeeds(self):
        names = {}
        exec("from di_orchestrator import *", names)
        self.assertLessEqual({"ReplicaClient", "Worker"}, set(names))
        self.assertNotIn("DIClient", names)

    def test_missing_client_names_the_wheel(self):
        with self.assertRaisesRegex(ImportError, HINT):
            from di_orchestrator import DIClient  # noqa: F401


if __name__ == "__main__":
    unittest.main()
