"""Every error that a user can cause or meet, as one tree, and the exit codes of the command line.

    KassayError                 root; a user's mistake unless a subclass says otherwise
    ├── ConfigError             a profile, fragment, symbol or override is not what Kconfig and Hydra allow
    ├── PlanError               workflow.yaml does not resolve into a DAG of known programs and inputs
    ├── RecordError             a JSONL line is broken, contradicts itself, or a value may not be written
    │   └── VersionError        a record is of another version of its kind than this kassay reads
    ├── RunError                the results folder, a lock or a stage directory cannot be used
    ├── ProtocolError           a study is not what was frozen, or records of two protocols would be judged as one
    ├── SourceError             a source cannot be frozen or a stack cannot be built or attested
    ├── ModelError              a checkpoint is missing, corrupted, or of an unsupported geometry (kassay.backend)
    └── InvalidData             data that no statistic may be computed from (kassay.stats)

A message says what, where, what was got, what is allowed; the next command stands on a line of its own as `hint: …`.
"""


class KassayError(Exception):
    """Root of all errors whose message is for the user; a bug keeps its traceback instead.

    Several messages of one document are reported together: `KassayError("a", "b", hint="make listdefconfigs")`.
    """

    def __init__(self, *messages: str, hint: str | None = None) -> None:
        super().__init__(*messages)
        self.messages = messages
        self.hint = hint

    def __str__(self) -> str:
        lines = [*self.messages]
        if self.hint is not None:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)


class ConfigError(KassayError):
    """A profile, fragment, symbol or override is not what Kconfig and Hydra allow."""


class PlanError(KassayError):
    """workflow.yaml does not resolve into a DAG of known programs, parameters and inputs."""


class RecordError(KassayError):
    """A JSONL line is broken or contradicts itself, or a value may not be written."""


class VersionError(RecordError):
    """A record is of another version of its kind than this kassay reads."""


class RunError(KassayError):
    """The results folder, a lock or a stage directory cannot be used."""


class ProtocolError(KassayError):
    """A study is not what was frozen, or records of two protocols would be judged as one."""


class SourceError(KassayError):
    """A source cannot be frozen, or a stack cannot be built or attested."""


# Exit codes of the command line; a stage program uses 0, 3 and 4 of them, everything else is a crash.
EXIT_PASSED = 0
EXIT_CRASHED = 1
EXIT_USAGE = 2
EXIT_REJECTED = 3
EXIT_UNMET = 4
