"""A frozen study: what changes it is another protocol, said by the run and the report, and never judged together."""

import json
from typing import Any

import pytest

from kassay import digest, paths, plan, protocol
from kassay.errors import ProtocolError
from kassay.report.model import load_run
from kassay.report.words import frozen_words
from tests.conftest import Project, Silent, Went, setup_of

JUDGE = """
    from kassay.pooling import require_own_protocol
    require_own_protocol(stage)
    stage.write_json("verdict", {"limit": stage.params["limit"]})
    return {}
"""


class Trial:
    """A project with a stage that measures, one that judges, and a study."""

    def __init__(self, project: Project) -> None:
        self.project = project
        project.program("judge", JUDGE)
        self.study: dict[str, Any] = {"name": "toy", "limit": 1, "seed": 7}

    def plan(self) -> plan.Plan:
        """The plan of the study as it is now."""
        given = {"resources": {"cpus": 1, "memory_gib": 0.1}}
        judge = {"program": "judge", "inputs": {"records": "measure.out"}, "params": {"limit": self.study["limit"]}}
        stages = {"measure": {"program": "ok", **given}, "judge": {**judge, **given}}
        return plan.build("toy", "toy", {"stages": stages, "study": dict(self.study)})

    def go(self, **chosen: set[str]) -> Went:
        """Run it to the end."""
        import sys

        from kassay.run import Run

        run = Run(self.plan(), setup_of(self.project.results, sys.executable, 60.0, **chosen), self.project.engine())
        watcher = Silent()
        went = Went(run, watcher, run.go(watcher))
        went.said = [event.why for event in watcher.events if event.event == "protocol_noted"]  # type: ignore[attr-defined]
        return went

    def freeze(self, again: str = "") -> str:
        """Freeze the study as it is now."""
        return protocol.freeze("toy", dict(self.study), self.project.results, again)


@pytest.fixture
def trial(project: Project) -> Trial:
    """A fresh one."""
    return Trial(project)


def said(went: Went) -> list[str]:
    """What a run told of its protocol."""
    return list(went.said)  # type: ignore[attr-defined]


def test_the_plan_covers_the_study(trial: Trial) -> None:
    before = trial.plan()
    assert before.protocol() == plan.protocol_hash("toy", trial.study) == before.to_json()["protocol"]
    trial.study["seed"] = 8
    assert before.hash() != trial.plan().hash() and before.protocol() != trial.plan().protocol()


def test_without_a_study_there_is_no_protocol(project: Project) -> None:
    made = project.plan({"a": {"program": "ok"}})
    assert made.protocol() is None and protocol.state_of(made) is None
    went = project.go({"a": {"program": "ok"}})
    assert not (went.run.directory / paths.PROTOCOL).exists() and load_run(went.run.directory).protocol == {}


def test_unfrozen_a_changed_limit_judges_again_what_was_measured(trial: Trial) -> None:
    assert trial.go().code == 0
    trial.study["limit"] = 2
    went = trial.go()
    assert (went.code, said(went)) == (0, []) and "measure" in went.reused and "judge" in went.started


def test_a_changed_study_is_another_protocol_and_judges_nothing_of_the_frozen_one(trial: Trial) -> None:
    assert "frozen" in trial.freeze()
    first = trial.go()
    assert first.code == 0 and said(first)[0].endswith(protocol.read_book()["toy/toy"]["frozen_at"])
    old = trial.plan().protocol()
    trial.study["limit"] = 2
    second = trial.go()
    new = trial.plan().protocol()
    assert old is not None and new is not None
    assert said(second) == [second.run.protocol.words]  # type: ignore[union-attr]
    assert f"toy/toy {new[:8]} is another protocol than {old[:8]}" in said(second)[0] and ": limit; " in said(second)[0]
    assert second.words == {"measure": "passed", "judge": "crashed"} and second.code == 1
    assert f"protocol {new[:8]} judges no records of another: `records` under {old[:8]}" in second.reasons["judge"]
    assert "make FORCE=measure" in second.reasons["judge"]
    again = trial.go(force={"measure"})
    assert again.words == {"measure": "passed", "judge": "passed"}, again.reasons


def test_what_was_measured_before_another_freeze_is_refused_too(trial: Trial) -> None:
    """Whichever of the two was frozen: rules that were chosen with results in sight are not confirmed by them."""
    assert trial.go().code == 0
    trial.study["limit"] = 2
    trial.freeze()
    went = trial.go()
    assert went.words["judge"] == "crashed" and "refused: protocol" in went.reasons["judge"]


def test_the_same_study_frozen_afterwards_goes_on_and_the_report_says_when(trial: Trial) -> None:
    went = trial.go()
    told = trial.freeze()
    assert told.endswith(f"frozen; it had results before: {went.run.directory.name}")
    assert trial.go().code == 0
    words = frozen_words(load_run(went.run.directory).protocol)
    assert words.startswith("the same, frozen ") and ", after this run began" in words


def test_the_report_shows_both_hashes(trial: Trial) -> None:
    from kassay.report import rendered

    trial.freeze()
    old = trial.plan().protocol()
    before = trial.go()
    assert ", before this run began" in frozen_words(load_run(before.run.directory).protocol)
    trial.study["limit"] = 2
    went = trial.go()
    pages = rendered(went.run.directory)
    assert old is not None and pages == rendered(went.run.directory)
    for page in ("report.md", "report.html", "report.json"):
        assert old in pages[page].decode() and str(trial.plan().protocol()) in pages[page].decode(), page
    assert "is another one; changed since: limit" in pages["report.html"].decode()


def test_freezing_again_is_free_without_results_and_needs_a_word_with_them(trial: Trial) -> None:
    trial.freeze()
    first = trial.plan().protocol()
    assert "unchanged" in trial.freeze()
    trial.study["limit"] = 2
    assert "in the place of" in trial.freeze()
    went = trial.go()
    trial.study["limit"] = 3
    before = paths.protocol().read_bytes()
    with pytest.raises(ProtocolError, match=rf"has results: {went.run.directory.name}") as caught:
        trial.freeze(again="  ")
    assert "changed since: limit" in caught.value.messages and "AGAIN=" in str(caught.value.hint)
    assert paths.protocol().read_bytes() == before
    trial.freeze(again="the limit was mistyped")
    entry = protocol.read_book()["toy/toy"]
    assert [row["study"]["limit"] for row in entry["earlier"]] == [1, 2] and entry["study"]["limit"] == 3
    assert entry["earlier"][0]["sha256"] == first and entry["earlier"][0]["runs"] == []
    assert entry["earlier"][1]["why"] == "the limit was mistyped"
    assert entry["earlier"][1]["runs"] == [went.run.directory.name]


def test_a_blocked_run_is_no_result(trial: Trial) -> None:
    trial.freeze()
    trial.project.program("ok", "    raise ValueError('no')")
    assert trial.go().code == 1
    trial.study["limit"] = 2
    assert "in the place of" in trial.freeze()


def test_studies_of_other_names_do_not_touch_each_other(trial: Trial) -> None:
    trial.freeze()
    trial.study |= {"name": "other", "limit": 5}
    assert said(trial.go()) == []
    trial.freeze()
    assert set(protocol.read_book()) == {"toy/toy", "toy/other"}


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"schema": "kassay.protocol/2", "protocols": {}}'])
def test_a_damaged_book_stops_everything_and_is_not_guessed(trial: Trial, text: str) -> None:
    paths.protocol().write_text(text)
    with pytest.raises(ProtocolError, match=r"protocol\.json"):
        trial.go()
    with pytest.raises(ProtocolError, match=r"protocol\.json"):
        trial.freeze()


def test_an_edited_book_is_found_out(trial: Trial) -> None:
    trial.freeze()
    body = json.loads(paths.protocol().read_bytes())
    body["protocols"]["toy/toy"]["study"]["limit"] = 9
    paths.protocol().write_text(json.dumps(body))
    with pytest.raises(ProtocolError, match="the study of `toy/toy` is not what its hash says"):
        trial.go()


def test_records_of_an_unknown_protocol_are_refused_once_one_is_frozen(trial: Trial) -> None:
    """A result that an older kassay made does not say of which protocol it is."""
    went = trial.go()
    request = went.run.directory / "stages" / "measure" / paths.REQUEST
    body = json.loads(request.read_bytes())
    del body["protocol"]
    digest.write_soon(request, body)
    trial.study["limit"] = 2
    trial.freeze()
    assert "`records` under unknown" in trial.go().reasons["judge"]
