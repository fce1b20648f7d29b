import sys

try:
    from repro.cli import main

    code = main()
except ModuleNotFoundError as missing:
    # Python's own exit code for it is that of a race shown.
    print(f"repro: {missing}; install this package and what it needs: pip install .", file=sys.stderr)
    sys.exit(2)

sys.exit(code)
