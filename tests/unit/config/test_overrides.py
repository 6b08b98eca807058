from __future__ import annotations

import pytest

from tests.unit.config.conftest import Load, Problems


def test_values_are_yaml(load: Load) -> None:
    recipe = load(
        overrides=[
            "train.learning_rate=1e-5",
            "train.max_steps=10",
            "tracking.tags=[a, b]",
            "tracking.wandb=off",
            "model.revision=",
            "data.shuffle_tools=false",
            "data.sources.0.weight=2",
        ]
    )
    assert recipe.train.learning_rate == 1e-5
    assert recipe.train.max_steps == 10
    assert recipe.tracking.tags == ("a", "b")
    assert recipe.tracking.wandb == "off"
    assert recipe.model.revision is None
    assert recipe.data.shuffle_tools is False
    assert recipe.data.sources[0].weight == 2.0


def test_the_last_of_two_wins_and_a_value_may_hold_equals_signs(load: Load) -> None:
    assert load(overrides=["seed=1", "seed=2", "tracking.project=a=b"]).seed == 2
    assert load(overrides=["tracking.project=a=b"]).tracking.project == "a=b"


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("train.epochs", "train.epochs: an override is written key=value, as in train.epochs=2"),
        ("=3", "=3: an override is written key=value, as in train.epochs=2"),
        ("train..epochs=3", "train..epochs=3: an override is written key=value, as in train.epochs=2"),
        ("train.epoch=3", "train.epoch: unknown key (override); did you mean train.epochs?"),
        ("trian.epochs=3", "trian: unknown key (override); did you mean train?"),
        ("tracking.tags=[a", "tracking.tags: not YAML: expected ',' or ']', but got '<stream end>' (override {})"),
        ("data={sources: [], sources: []}", "data: sources: stands twice (override {})"),
        ("name.x=1", "name: 'small' is not a section, so it has no key x (override {})"),
        (
            "data.sources.1.path=x",
            "data.sources: a list of 1; give a position below 1, or a whole list [..] (override {})",
        ),
        (
            "data.sources.path=x",
            "data.sources: a list of 1; give a position below 1, or a whole list [..] (override {})",
        ),
    ],
)
def test_overrides_that_do_not_fit(problems: Problems, override: str, problem: str) -> None:
    assert problems(overrides=[override]) == [problem.format(override)]
