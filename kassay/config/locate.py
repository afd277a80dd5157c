"""Where a key of a composed workflow stands: file and line, for messages."""

from pathlib import Path

import yaml

WORKFLOW_FILE = "workflow.yaml"


def place_of(workflow_dir: Path, choices: dict[str, str], key: str) -> str:
    """`decode/study/small.yaml:3` of `study.alpha`; the file alone where the key is not in it.

    `choices` has the chosen file of each group folder.
    """
    words = [word for part in key.split(".") for word in part.replace("]", "").split("[")]
    file, rest = workflow_dir / WORKFLOW_FILE, words
    around = workflow_dir.parent
    if words[0] in choices:
        from kassay.config import groups  # which knows the workflow's file by its name here

        folder = groups.folders(workflow_dir).get(words[0], workflow_dir / words[0])
        file, rest, around = folder / f"{choices[words[0]]}.yaml", words[1:], folder.parent.parent
    name = str(file.relative_to(around))
    line = line_of(file, rest)
    return f"{name}:{line}" if line else name


def line_of(file: Path, words: list[str]) -> int:
    """The line of a path of keys in a YAML file, or of the deepest of them that is there; 0 if there is none."""
    try:
        node = yaml.compose(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return 0
    line = 0
    for word in words:
        if isinstance(node, yaml.MappingNode):
            found = next(((key, value) for key, value in node.value if key.value == word), None)
        elif isinstance(node, yaml.SequenceNode) and word.isdigit() and int(word) < len(node.value):
            found = (node.value[int(word)],) * 2
        else:
            found = None
        if found is None:
            return line
        line, node = found[0].start_mark.line + 1, found[1]
    return line
