"""Follows a run and prints a line for each version: python -m zero_weights URL [--token T] [--once]."""

import argparse
import sys
import time

from . import GivenUp, Subscriber, WeightsError


def main() -> int:
    """Runs the command, and returns its exit status: 1 if an error ended it."""
    parser = argparse.ArgumentParser(prog="python -m zero_weights", description="Follows a training run's weights.")
    parser.add_argument("url", help="where the run's rank 0 serves, such as http://127.0.0.1:7000")
    parser.add_argument("--token", help="the run's token")
    parser.add_argument("--once", action="store_true", help="end after one version, or a minute without a server")
    options = parser.parse_args()
    try:
        with Subscriber(options.url, token=options.token) as subscriber:
            for name in subscriber.versions(stop_after=60 if options.once else None):
                begun = time.monotonic()
                try:
                    version = subscriber.fetch(name)
                    seconds = time.monotonic() - begun
                    subscriber.acknowledge(name)
                except WeightsError as error:
                    if options.once and not isinstance(error, GivenUp):
                        raise
                    print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
                    continue
                print(f"{name}: {len(version)} tensors, {version.nbytes / 2**20:.1f} MiB, {seconds:.2f} s", flush=True)
                if options.once:
                    break
    except (ValueError, WeightsError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
