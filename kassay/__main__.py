"""`python -m kassay`."""

from kassay.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
