"""kill -9 of the driver, of a stage, of both, at random moments: afterwards all is as if nothing had been.

100, 50 and 25 kills; the environment variable KASSAY_KILLS=10 multiplies them by ten, for a run by hand.
"""

import os
import random

import pytest

from tests.crash.campaign import Campaign, Target
from tests.crash.project import DrivenProject

TIMES = int(os.environ.get("KASSAY_KILLS", "1"))
SEED = 20261129


@pytest.mark.parametrize(("target", "kills"), [("driver", 100), ("stage", 50), ("both", 25)])
def test_whatever_is_killed_the_next_run_gives_what_an_undisturbed_one_does(
    driven: DrivenProject, target: Target, kills: int
) -> None:
    campaign = Campaign(driven=driven, draw=random.Random(f"{SEED} {target}"))
    campaign.prepare()
    campaign.shoot(target, kills * TIMES)
    print(
        f"{kills * TIMES} kills in {campaign.rounds} runs, up to {campaign.most} in one; {campaign.lasts_s:.1f} s each"
    )
    assert campaign.most > 1, "crashes on top of crashes"
