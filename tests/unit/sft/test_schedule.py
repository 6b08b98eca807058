from __future__ import annotations

import pytest

from txagent_train.sft.schedule import schedule


@pytest.mark.parametrize("shape", ["cosine", "linear", "constant"])
@pytest.mark.parametrize("total", [1, 2, 3, 10, 57])
def test_every_step_trains_and_the_peak_is_reached(shape: str, total: int) -> None:
    factor = schedule(shape, total_steps=total, warmup_ratio=0.1)  # type: ignore[arg-type]
    factors = [factor(step) for step in range(total)]
    assert all(0 < value <= 1 for value in factors)
    assert max(factors) == 1.0


def test_warm_up_then_decay_to_zero_after_the_last_step() -> None:
    factor = schedule("linear", total_steps=10, warmup_ratio=0.3)
    assert [round(factor(step), 4) for step in range(5)] == [0.25, 0.5, 0.75, 1.0, 0.8571]
    assert factor(10) == 0.0
    assert schedule("cosine", total_steps=10, warmup_ratio=0.0)(5) == pytest.approx(0.5)
    assert schedule("constant", total_steps=10, warmup_ratio=0.0)(10) == 1.0
