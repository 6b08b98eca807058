"""The site file: strict, with suggestions, and without secrets."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txagent_train.config.shipped import shipped_folder
from txagent_train.core.errors import RecipeError
from txagent_train.launch.site import Site, load_site, seconds_of, shell_text

SMALLEST = "time: 24:00:00\ngpus_per_node: 8\n"


def site_file(folder: Path, text: str) -> Path:
    path = folder / "site.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_what_is_written_is_read(tmp_path: Path) -> None:
    text = "memory: 0\nenv: {OMP_NUM_THREADS: 8, HF_HOME: /scratch/$USER/hf, WANDB_API_KEY: $WANDB_API_KEY}\n"
    site = load_site(site_file(tmp_path, SMALLEST + text))
    assert (site.time, site.memory, site.requeue, site.signal_seconds) == ("24:00:00", "0", True, 600)
    assert site.env == {"OMP_NUM_THREADS": "8", "HF_HOME": "/scratch/$USER/hf", "WANDB_API_KEY": "$WANDB_API_KEY"}


def test_the_shipped_example_is_valid() -> None:
    assert load_site(shipped_folder("slurm") / "site.example.yaml").gpus_per_node == 8


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("acount: x", r"acount: unknown key \(line 3\); did you mean account\?"),
        ("container: {image: x.sif}", r"container.kind: say apptainer or pyxis"),
        (
            "container: {kind: docker, image: x}",
            r"container.kind: must be none \| apptainer \| pyxis, not the text 'docker'",
        ),
        ("container: {kind: pyxis}", r"container.image: pyxis needs the image"),
        ("account: a b", r"account: must be one word"),
        ("modules: [cuda; rm -rf x]", r"modules.0: must be one word"),
        ("memory: lots", r"memory: must be a number"),
        ("signal_seconds: 86400", r"signal_seconds: the time limit is 86400 seconds"),
        ("env: {A-B: x}", r"env.A-B: is no name of a variable"),
        ("env: {WANDB_API_KEY: abc}", r"env.WANDB_API_KEY: looks like a secret.*write \$WANDB_API_KEY"),
        ("env: {HF_TOKEN: x$HF_TOKEN}", r"env.HF_TOKEN: looks like a secret"),
        (f"env: {{NOTE: hf_{'a' * 34}}}", r"env.NOTE: looks like a secret"),
        (f"setup: ['export X={'0123456789' * 4}']", r"setup.0: looks like a secret"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(RecipeError, match=problem) as caught:
        load_site(site_file(tmp_path, f"{SMALLEST}{text}\n"))
    assert "in the site file" in str(caught.value) and caught.value.exit_code == 2


def test_a_secret_is_not_repeated_in_the_message(tmp_path: Path) -> None:
    with pytest.raises(RecipeError) as caught:
        load_site(site_file(tmp_path, SMALLEST + "env: {HF_TOKEN: very-secret}\n"))
    assert "very-secret" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "- a\n"])
def test_no_mapping(tmp_path: Path, text: str) -> None:
    with pytest.raises(RecipeError, match=r"the site file (is empty|must be a mapping)"):
        load_site(site_file(tmp_path, text))


def test_all_problems_at_once(tmp_path: Path) -> None:
    with pytest.raises(RecipeError) as caught:
        load_site(site_file(tmp_path, "time: soon\ngpus_per_node: -1\nqos: a b\n"))
    assert len(caught.value.problems) == 3


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 5400),
        ("10:30", 630),
        ("24:00:00", 86400),
        ("1-12", 129600),
        ("2-00:30", 174600),
        ("1-00:00:01", 86401),
    ],
)
def test_times_of_slurm(text: str, seconds: int) -> None:
    assert seconds_of(text) == seconds


@given(st.text(st.characters(exclude_characters="\0\n", exclude_categories=["Cs"]), min_size=1, max_size=30))
def test_bash_reads_a_text_as_it_is(text: str) -> None:
    """Only references are the shell's; the same text without its dollars comes back unchanged."""
    plain = text.replace("$", "")
    done = subprocess.run(["bash", "-c", f"printf %s {shell_text(plain)}"], capture_output=True, check=True)
    assert done.stdout.decode() == plain


def test_references_are_the_environments() -> None:
    text = shell_text("/scratch/$WHO/${WHO}x $(date) `date` $1")
    done = subprocess.run(
        ["bash", "-uc", f"printf %s {text}"],
        capture_output=True,
        check=True,
        env={"WHO": "me", "PATH": "/bin:/usr/bin"},
    )
    assert done.stdout.decode() == "/scratch/me/mex $(date) `date` $1"


def test_nothing_is_asked_twice() -> None:
    """Every field of the schema is in the example or has a default, so that a new cluster needs two lines."""
    assert [name for name, field in Site.model_fields.items() if field.is_required()] == ["time", "gpus_per_node"]
