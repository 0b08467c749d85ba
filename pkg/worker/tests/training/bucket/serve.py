"""Serves S3 on a free port of this machine, with a bucket and a user who may do everything in it, until its input ends.

Prints a line: where it is, and the user's keys.
"""

import json
import os
import sys

os.environ["INITIAL_NO_AUTH_ACTION_COUNT"] = "4"  # those below; after them, signatures are checked

import boto3
from moto.server import ThreadedMotoServer

server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
host, port = server.get_host_and_port()
access = {
    "endpoint_url": f"http://{host}:{port}",
    "region_name": "us-east-1",
    "aws_access_key_id": "nobody",
    "aws_secret_access_key": "nothing",
}
boto3.client("s3", **access).create_bucket(Bucket="training")
users = boto3.client("iam", **access)
users.create_user(UserName="trainer")
policy = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
users.put_user_policy(UserName="trainer", PolicyName="all", PolicyDocument=json.dumps(policy))
key = users.create_access_key(UserName="trainer")["AccessKey"]
told = {"endpoint": access["endpoint_url"], "key": key["AccessKeyId"], "secret": key["SecretAccessKey"]}
print(json.dumps(told), flush=True)
sys.stdin.read()
server.stop()
