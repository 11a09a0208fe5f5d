"""The command `objectstore`: put, get, ls, rm; fill and verify for trials.

Exit status: 0, 1 when something is not there or not right, 2 for wrong usage.
"""

import argparse
import asyncio
import json
import math
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from objectstore.count import figures
from objectstore.errors import ObjectStoreError
from objectstore.fill import fill
from objectstore.store import CHUNK_BYTES, Store
from objectstore.tree import Tree
from objectstore.verify import settle
from objectstore.workers import ROOT

Command = Callable[[argparse.Namespace], Coroutine[Any, Any, int]]


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parse(argv)
    command: Command = arguments.command
    try:
        return asyncio.run(command(arguments))
    except ValueError as error:
        return _say(error, 2)
    except (ObjectStoreError, OSError) as error:
        return _say(error, 1)
    except KeyboardInterrupt:
        return 130


def _say(error: Exception, status: int) -> int:
    print(f"objectstore: {' '.join(str(error).split())}", file=sys.stderr)
    return status


async def _put(arguments: argparse.Namespace) -> int:
    data = sys.stdin.buffer.read() if arguments.file is None else arguments.file.read_bytes()
    store = Store(arguments.dir)
    manifest = await store.put(arguments.bucket, arguments.key, data, expires_in_seconds=arguments.expires_in)
    print(f"{arguments.bucket}/{arguments.key}: {manifest.size} bytes in {len(manifest.chunks)} chunks")
    return 0


async def _get(arguments: argparse.Namespace) -> int:
    data = await Store(arguments.dir).get(arguments.bucket, arguments.key)
    if arguments.file is None:
        sys.stdout.buffer.write(data)
    else:
        arguments.file.write_bytes(data)
    return 0


async def _ls(arguments: argparse.Namespace) -> int:
    store = Store(arguments.dir)
    buckets = await store.buckets() if arguments.bucket is None else [arguments.bucket]
    objects = [each for bucket in buckets for each in await store.list(bucket)]
    if arguments.json:
        rows = [
            {"bucket": each.bucket, "key": each.key, "size": each.size, "expires_at": each.expires_at}
            for each in objects
        ]
        print(json.dumps(rows))
        return 0
    for each in objects:
        ends = (
            ""
            if each.expires_at is None
            else f"  until {datetime.fromtimestamp(each.expires_at, UTC):%F %T}Z"
        )
        print(f"{each.size:>12}  {each.bucket}/{each.key}{ends}")
    return 0


async def _rm(arguments: argparse.Namespace) -> int:
    if await Store(arguments.dir).delete(arguments.bucket, arguments.key):
        return 0
    return _say(ObjectStoreError(f"there is no {arguments.bucket}/{arguments.key}"), 1)


async def _stats(arguments: argparse.Namespace) -> int:
    print(json.dumps(figures(_tree(arguments)), indent=2))
    return 0


async def _fill(arguments: argparse.Namespace) -> int:
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    done = await fill(
        arguments.dir,
        stopping,
        seconds=arguments.seconds,
        writers=arguments.writers,
        seed=arguments.seed,
        chunk_bytes=arguments.chunk_bytes,
        pause_seconds=arguments.pause,
    )
    print(f"{done} operations")
    return 0


async def _verify(arguments: argparse.Namespace) -> int:
    tree = _tree(arguments)
    report = settle(tree, arguments.within)
    for problem in (*report.broken, *report.left)[:50]:
        print(problem)
    found = len(report.broken) + len(report.left)
    print(
        ", ".join(f"{number} {what}" for what, number in report.checked.items()) or "nothing there", end=": "
    )
    print(f"{found} problems" if found else "all is well")
    return 1 if found else 0


def _tree(arguments: argparse.Namespace) -> Tree:
    tree = Tree(arguments.dir)
    tree.prepare()
    return tree


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError("must be a number of seconds greater than 0")
    return seconds


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="objectstore", description=__doc__)
    parser.add_argument("--dir", type=Path, default=os.environ.get(ROOT), help=f"the store; else {ROOT}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, command: Command, text: str, *positional: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text)
        added.set_defaults(command=command)
        for each in positional:
            added.add_argument(each)
        return added

    put = add("put", _put, "store a file, or standard input", "bucket", "key")
    put.add_argument("file", type=Path, nargs="?")
    put.add_argument("--expires-in", type=_seconds, metavar="SECONDS")
    get = add("get", _get, "write an object to a file, or to standard output", "bucket", "key")
    get.add_argument("file", type=Path, nargs="?")
    ls = add("ls", _ls, "list the objects of a bucket, or of all")
    ls.add_argument("bucket", nargs="?")
    ls.add_argument("--json", action="store_true")
    add("rm", _rm, "remove an object", "bucket", "key")
    add("stats", _stats, "what is there, and what the background workers have done, as JSON")
    filling = add("fill", _fill, "put, replace, read and delete objects at random, and keep a journal")
    filling.add_argument("--seconds", type=float, help="until it is stopped, if not given")
    filling.add_argument("--writers", type=int, default=4)
    filling.add_argument("--seed", type=int, default=0)
    filling.add_argument(
        "--pause", type=float, default=0.1, help="between two operations of a writer, at most"
    )
    filling.add_argument("--chunk-bytes", type=int, default=CHUNK_BYTES)
    verifying = add("verify", _verify, "check the store, the journals of fill and the ledger of the workers")
    verifying.add_argument(
        "--within", type=float, default=0, metavar="SECONDS", help="wait for it to be tidy"
    )
    arguments = parser.parse_args(argv)
    if arguments.dir is None:
        parser.error(f"give --dir, or set {ROOT}")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
