"""Campaigns that a bench runs: each with a store of its own, which is deleted at the end."""

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from mhc.fuzz.campaign.campaign import Budget, Campaign
from mhc.fuzz.campaign.planner import Subject
from mhc.fuzz.campaign.pool import Pool
from mhc.fuzz.campaign.store import FILE, Store
from mhc.fuzz.executors.local import Specs
from mhc.fuzz.worker.limits import Limits


@contextmanager
def campaign(specs: Specs, pool: Pool, budget: Budget, memory: float = Limits.memory, **options: Any) -> Iterator[Campaign]:
    """Make a campaign over `specs`, to be run and read inside of the block. memory, options: as `Campaign` has them."""
    subjects = [Subject(spec=spec, implementation=implementation) for spec, implementation in specs.values()]
    with tempfile.TemporaryDirectory() as folder, closing(Store.create(Path(folder) / FILE)) as store:
        yield Campaign(subjects, store, pool, budget, memory=memory, **options)
