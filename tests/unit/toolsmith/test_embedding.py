from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from txagent_train.core.errors import ModelError
from txagent_train.data.toolbox import Toolbox
from txagent_train.toolsmith.embedding import TfidfEmbedder, document, make_embedder
from txagent_train.toolsmith.neighbours import nearest_tools, write_neighbours


def test_rows_have_length_one_and_do_not_depend_on_their_company(toolbox: Toolbox) -> None:
    embedder = TfidfEmbedder(toolbox.tools)
    rows = embedder.embed(toolbox.tools)
    assert np.allclose(np.linalg.norm(rows, axis=1), 1)
    assert (embedder.embed(toolbox.tools[3:4]) == rows[3:4]).all()
    assert embedder.embed([]).shape[0] == 0


def test_vectors_are_the_same_in_every_process(toolbox: Toolbox) -> None:
    code = (
        "from txagent_train.core.records import ToolSpec\n"
        "from txagent_train.toolsmith.embedding import TfidfEmbedder\n"
        "specs = [ToolSpec('get_dose', 'Dose of a drug.', {})]\n"
        "print(TfidfEmbedder(specs).embed(specs)[0].nonzero()[0].tolist())"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(outputs) == 1


def test_a_document_is_what_tool_rag_embeds(toolbox: Toolbox) -> None:
    assert json.loads(document(toolbox.tools[0])) == {
        "name": "get_warnings_by_drug_name",
        "description": "Retrieve warning information based on the drug name.",
        "parameter": {"drug_name": {"type": "string", "description": "The name of the drug."}},
        "required": ["drug_name"],
    }


@pytest.mark.slow
def test_a_sentence_transformers_model_can_take_its_place(toolbox: Toolbox, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules
    from transformers import BertConfig, BertModel, BertTokenizerFast

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(chr(code) for code in range(33, 127))]
    words += [f"##{word}" for word in words[5:]]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    config = BertConfig(
        vocab_size=len(words), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    BertModel(config).save_pretrained(tmp_path / "bert")
    BertTokenizerFast(str(tmp_path / "vocab.txt")).save_pretrained(tmp_path / "bert")
    transformer = modules.Transformer(str(tmp_path / "bert"), max_seq_length=64)
    SentenceTransformer(modules=[transformer, modules.Pooling(16)]).save(str(tmp_path / "model"))
    embedder = make_embedder(str(tmp_path / "model"), toolbox.tools)
    rows = embedder.embed(toolbox.tools)
    assert rows.shape == (10, 16) and np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    assert embedder.name == str(tmp_path / "model")


@pytest.mark.slow
def test_a_model_that_is_not_there_is_the_users_error(toolbox: Toolbox, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="embedding model"):
        make_embedder(str(tmp_path / "nothing"), toolbox.tools)


def test_the_nearest_tool_is_the_one_the_other_way_round(toolbox: Toolbox) -> None:
    nearest = nearest_tools(toolbox, TfidfEmbedder(toolbox.tools), 3)
    assert nearest["get_storage_by_drug_name"][0] == "get_drug_names_by_storage"
    assert all(len(names) == 3 and tool not in names for tool, names in nearest.items())
    assert "Finish" not in nearest and not any("Tool_RAG" in names for names in nearest.values())


def test_a_neighbour_file_says_for_which_toolbox_it_is(toolbox: Toolbox, tmp_path: Path) -> None:
    path = tmp_path / "n.json"
    report = write_neighbours(toolbox, TfidfEmbedder(toolbox.tools), path, n=100)
    written = json.loads(path.read_text())
    assert written["toolbox_hash"] == toolbox.hash
    assert {len(names) for names in written["neighbours"].values()} == {7} == {report["neighbours_each"]}


def test_each_real_tool_is_nearest_to_itself(shared_data: Callable[[str], Path]) -> None:
    toolbox = Toolbox.read(shared_data("tooluniverse_v0") / "tools.json")
    rows = TfidfEmbedder(toolbox.tools).embed(toolbox.tools)
    near = rows @ rows.T
    np.fill_diagonal(near, -1)
    assert near.max() < 0.98
