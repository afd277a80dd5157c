"""Check every record of runs by its JSON Schema: `validate-records.py <run directory>…`; 3 if one is not valid.

Needs the library jsonschema, which the extra `dev` has. Prints a line for each fault, and how many records there were.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from kassay import paths, schemas
from kassay.errors import EXIT_PASSED, EXIT_REJECTED, EXIT_USAGE
from kassay.query.scan import files_of
from kassay.record import read_lines


def main() -> int:
    """All files of records of all runs that are named."""
    if not sys.argv[1:] or not all((Path(name) / paths.PLAN).is_file() for name in sys.argv[1:]):
        print("error: name run directories\nhint: scripts/validate-records.py results/latest", file=sys.stderr)
        return EXIT_USAGE
    records = faults = 0
    for name in sys.argv[1:]:
        for _, path, _ in files_of(Path(name)):
            for number, body in enumerate(read_lines(path), start=1):
                records += 1
                for fault in schemas.validate(body):
                    faults += 1
                    print(f"{path}:{number}: {body['schema']}: {fault}")
    print(f"{records} records, {faults} faults", file=sys.stderr)
    return EXIT_REJECTED if faults else EXIT_PASSED


if __name__ == "__main__":
    raise SystemExit(main())
