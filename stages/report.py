"""Render the run's reports from its records and outcomes, into its directory and as artifacts.

It passes whenever it rendered: verdicts are in the outcomes of the other stages, and in the run's exit code.
Links in report.html are relative to the run directory, where the page is meant to be read.
"""

from kassay import digest
from kassay.report import rendered
from kassay.stage import Metrics, Stage, main


def run(stage: Stage) -> Metrics:
    """Render once, write twice."""
    run_dir = stage.inputs["run"]
    made = rendered(run_dir)
    for name, data in made.items():
        digest.write_bytes(stage.directory / name, data)
        stage.add_artifact(name, stage.directory / name)
        digest.write_bytes(run_dir / name, data)
    return {f"{name} bytes": len(data) for name, data in made.items()}


if __name__ == "__main__":
    main(run)
