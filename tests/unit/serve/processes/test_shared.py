"""What all processes have the same of."""

from __future__ import annotations

import pytest

from opweld.serve.processes.shared import shared_reports
from opweld.serve.refusal import Refusal
from tests.unit.serve.processes.test_hub import Workers, check


def test_a_report_is_handed_out_by_who_did_not_make_it() -> None:
    async def test(workers: Workers) -> None:
        reports = [shared_reports(workers.members[number]) for number in range(2)]
        reports[0]._made["token"] = "<p>größer</p>".encode()
        for one in reports:
            assert (await one.get("token")).decode() == "<p>größer</p>"
            with pytest.raises(Refusal, match="no such report any more"):
                await one.get("other")

    check(test)
