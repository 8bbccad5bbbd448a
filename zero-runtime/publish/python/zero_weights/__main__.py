"""Follows a run, and prints a line for each version: python -m zero_weights URL [--token T] [--once]."""

from __future__ import annotations

import argparse
import sys
import time

from . import Corrupt, GivenUp, Subscriber, Unreachable, WeightsError


def main() -> int:
    """Runs the command; gives its exit status: 0, or 1 after an error that ends it."""
    parser = argparse.ArgumentParser(prog="python -m zero_weights", description="Follows the weights of a training run.")
    parser.add_argument("url", help="rank 0's server, such as http://127.0.0.1:7000")
    parser.add_argument("--token", help="the run's token")
    parser.add_argument("--once", action="store_true", help="end after one version, or a minute without a server")
    arguments = parser.parse_args()
    try:
        with Subscriber(arguments.url, token=arguments.token) as subscriber:
            for name in subscriber.versions(stop_after=60 if arguments.once else None):
                begun = time.monotonic()
                try:
                    version = subscriber.fetch(name)
                    seconds = time.monotonic() - begun
                    subscriber.acknowledge(name)
                except (Corrupt, GivenUp, Unreachable) as error:
                    print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
                    if arguments.once and not isinstance(error, GivenUp):
                        return 1
                    continue
                size = version.nbytes / (1 << 20)
                print(f"{name}: {len(version)} tensors, {size:.1f} MiB, {seconds:.2f} s", flush=True)
                if arguments.once:
                    break
    except (ValueError, WeightsError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
