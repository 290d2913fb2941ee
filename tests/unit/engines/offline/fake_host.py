# SPDX-License-Identifier: Apache-2.0
"""Speaks an engine host's protocol without an engine; what the prompt's first token says, it does.

Run by test_client.py in the place of kvseal.engines.offline.host.
"""

import os
import signal
import sys
import time
from multiprocessing.connection import Client

from kvseal.engines.offline.protocol import ADDRESS_VARIABLE, json_values, receive, send

DIE, VANISH, SILENT, FAIL, CLOSE, TORN, LEAVE_AFTER = range(900, 907)


def start(arguments):
    if arguments["model"] == "broken":
        send(connection, ok=False, error="ValueError: no such model")
    elif arguments["model"] == "deadly":
        print("last words of the engine", flush=True)
        sys.exit(3)
    elif arguments["model"] == "silent":
        time.sleep(600)
    else:
        described = {"arguments": arguments, "environment": dict(os.environ), "infinite": 1e999}
        send(connection, ok=True, engine=json_values(described))


def answer(question):
    first = question["token_ids"][0]
    if first == DIE:
        print("out of words", flush=True)
        os._exit(7)
    elif first == VANISH:
        os.kill(os.getpid(), signal.SIGKILL)
    elif first == SILENT:
        time.sleep(600)
    elif first == CLOSE:
        connection.close()
        time.sleep(600)
    elif first == TORN:
        os.write(connection.fileno(), b"\0\0\1\0{")
        os._exit(8)
    elif first == FAIL:
        send(connection, ok=False, error="RuntimeError: no room")
    else:
        generated = [first, question["max_tokens"], question["seed"]]
        told = {
            "prompt_token_ids": question["token_ids"],
            "token_ids": generated,
            "cached_tokens": None if first == 1 else 16,
            "finish_reason": "length",
            "top2": [None, [[generated[0], -0.5], [2, -1.5]]],
        }
        send(connection, ok=True, answer=told)
        if first == LEAVE_AFTER:
            os._exit(9)


hangs = False
with Client(os.environ[ADDRESS_VARIABLE], family="AF_UNIX") as connection:
    while True:
        try:
            message = receive(connection)
        except EOFError:
            sys.exit(5)
        if message["op"] == "start":
            hangs = message["arguments"]["tokenizer"] == "hangs"
            start(message["arguments"])
        elif message["op"] == "answer":
            print("asked in scope", message["question"]["scope"], flush=True)
            answer(message["question"])
        else:
            time.sleep(600 if hangs else 0)
            sys.exit(0)
