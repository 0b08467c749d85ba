import json
import runpy
import sys
import unittest
import xmlrpc.client
from pathlib import Path
from unittest import mock

SAMPLES = Path(__file__).parents[1] / "samples"


class CartpoleTest(unittest.TestCase):
    def test_learner_reports_more_than_32_bits(self):
        torch = mock.MagicMock()
        with mock.patch.dict(sys.modules, {"torch": torch, "torch.distributions": torch.distributions}):
            run_learner = runpy.run_path(str(SAMPLES / "cartpole.py"))["run_learner"]
        report = {"samples": 2**31, "stats": {"mean_return": 9.5}}
        worker = mock.MagicMock(current_report=report)
        worker.__enter__.return_value = worker
        fakes = {"Worker": lambda: worker, "serve": mock.Mock()}
        with mock.patch.dict(run_learner.__globals__, fakes):
            run_learner()
        _, train_with = fakes["serve"].call_args.args
        sent = xmlrpc.client.dumps((train_with([]),), methodresponse=True)
        ((received,), _) = xmlrpc.client.loads(sent)
        self.assertEqual(json.loads(received), report)


if __name__ == "__main__":
    unittest.main()
