"""``python -m repro``, and the command ``repro`` of an installed package."""

import sys


def main() -> int:
    """Run the command line; where not all that it needs is there, say so."""
    try:
        from repro.cli import main

        return main()
    except ImportError as missing:
        # Python's own exit code for it is that of a race shown.
        print(f"repro: {missing}; install this package and what it needs: pip install .", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
