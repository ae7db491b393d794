"""Language models from local files: the shipped one, a Hugging Face folder, or a GGUF file.

Nothing is fetched. A GGUF file is converted once and the result kept in the folder that the harness
names in PANELBENCH_CACHE.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from panelbench import DataError
from panelbench_path import shipped
from panelbench_path.reserved import Reserved
from panelbench_path.serialise import END

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from transformers import PreTrainedModel

    from panelbench_path.serialise import Form
    from panelbench_path.vocabulary import Ids, Pieces, Tokens

CACHE = "PANELBENCH_CACHE"
DTYPES = ("float32", "bfloat16")


class Tokenized:
    """`Tokens` of a Hugging Face tokenizer, each piece by itself.

    Args:
        tokenizer: The tokenizer.
    """

    def __init__(self, tokenizer: Any) -> None:  # noqa: ANN401 - one of many classes
        self._tokenizer = tokenizer

    def _ids(self, text: str) -> Ids:
        return tuple(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def header(self, form: Form) -> Ids:
        """The line of names, after the start token where the model has one."""
        start = self._tokenizer.bos_token_id
        return (*(() if start is None else (start,)), *self._ids(form.header))

    def row(self, number: int) -> Ids:
        """As text."""
        return self._ids(f"\n[Row {number}]:")

    def end(self) -> Ids:
        """As text."""
        return self._ids(f"\n{END}")

    def name(self, form: Form, index: int) -> Ids:
        """As text."""
        return self._ids(f"{',' if index else ''} {form.first[index].name} is")

    def values(self, form: Form, number: int, index: int) -> list[Ids]:
        """Each with the space before it."""
        return [self._ids(f" {text}") for text in form.row(number)[index].texts]

    def text(self, form: Form, ids: Sequence[int]) -> str:  # noqa: ARG002 - of the protocol
        """As the tokenizer has it."""
        return str(
            self._tokenizer.decode(
                list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
            )
        )


def check_text(form: Form, pieces: Pieces, tokens: Tokens) -> None:
    """Check that pieces put together are the text, on a made-up table.

    Raises:
        DataError: Where they are not: the tokenizer adds something to every piece.
    """
    import numpy as np  # noqa: PLC0415 - the module loads without

    rows = min(2, form.schema.max_rows)
    table = np.zeros((rows, len(form.first)), dtype=np.int64)
    got = tokens.text(form, pieces.ids[pieces.table(table)].tolist())
    if got != form.text(table):
        raise DataError(
            f"The model's tokenizer cannot write text in pieces: it made {got[:60]!r} of "
            f"{form.text(table)[:60]!r}; take another model."
        )


def digest(where: str) -> str:
    """SHA-256 of a model, in hexadecimal: of its file, or of the names and files of its folder.

    Args:
        where: As in `load`.

    Raises:
        DataError: Where there is none.
    """
    path = _located(where) if where else shipped.WEIGHTS
    if not path.is_dir():
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    whole = hashlib.sha256()
    for file in sorted(each for each in path.rglob("*") if each.is_file()):
        with file.open("rb") as stream:
            own = hashlib.file_digest(stream, "sha256").hexdigest()
        whole.update(f"{own}  {file.relative_to(path).as_posix()}\n".encode())
    return whole.hexdigest()


def _located(where: str) -> Path:
    path = Path(where).expanduser()
    if not path.exists():
        raise DataError(
            f"There is no model at '{where}'; name a folder in the format of Hugging Face or a "
            f"GGUF file on this machine, or leave `model` out for the shipped one."
        )
    return path


def load(where: str, *, dtype: str = "float32") -> tuple[PreTrainedModel, Tokens]:
    """A model in evaluation mode, and what makes its tokens.

    Args:
        where: A Hugging Face folder, a GGUF file, or nothing for the shipped model.
        dtype: "float32" or "bfloat16".

    Raises:
        DataError: Where it cannot be loaded, with the reason.
    """
    import torch  # noqa: PLC0415 - cells fork from a parent that has not imported it

    kind = getattr(torch, dtype)
    if not where:
        return shipped.load().to(kind), Reserved()
    path = _located(where)
    folder = path if path.is_dir() else _converted(path)
    model, tokenizer = _read(folder, kind, named=where)
    return model.eval(), Tokenized(tokenizer)


def _read(folder: Path, kind: Any, *, named: str, **more: Any) -> tuple[Any, Any]:  # noqa: ANN401 - the library is loosely typed
    try:
        from transformers import (  # noqa: PLC0415 - an extra, and slow to import
            AutoModelForCausalLM,
            AutoTokenizer,
        )
    except ImportError as error:
        raise DataError(
            "Language models need the extra `pip install panelbench-path[learnt,models]`."
        ) from error
    if not more:
        for files, what in (
            (("config.json",), "configuration (config.json)"),
            (("tokenizer.json", "tokenizer.model", "vocab.json"), "tokenizer (tokenizer.json)"),
        ):
            if not any((folder / name).is_file() for name in files):
                raise DataError(
                    f"The model folder '{named}' has no {what}; copy the whole folder of the model."
                )
    options = {"local_files_only": True, **more}
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, **options)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=kind, **options)
    except MemoryError:
        raise
    except Exception as error:  # the readers raise anything on broken files
        first = next(iter(str(error).splitlines()), "") or type(error).__name__
        raise DataError(
            f"The model '{named}' cannot be read ({first[:200]}); check that it was copied whole."
        ) from error
    return model, tokenizer


def _converted(file: Path) -> Path:
    """The Hugging Face folder that a GGUF file was converted to, now or before.

    Raises:
        DataError: Where the file is no GGUF file or is not whole.
    """
    with file.open("rb") as stream:
        if stream.read(4) != b"GGUF":
            raise DataError(
                f"'{file}' is neither a folder nor a GGUF file; name one in the format of "
                f"Hugging Face, or a file that begins with GGUF."
            )
    import torch  # noqa: PLC0415 - cells fork from a parent that has not imported it

    facts = (str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns)
    key = hashlib.sha256(repr(facts).encode()).hexdigest()[:24]
    folder = Path(os.environ.get(CACHE) or tempfile.gettempdir()) / "path-models" / key
    if (folder / "config.json").is_file():
        return folder
    model, tokenizer = _read(file.parent, torch.float32, named=str(file), gguf_file=file.name)
    if hasattr(model.config, "quantization_config"):  # the weights are whole numbers no more
        del model.config.quantization_config
    model.is_quantized, model.hf_quantizer = False, None
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(dir=folder.parent))
    model.save_pretrained(part)
    tokenizer.save_pretrained(part)
    try:
        part.rename(folder)
    except OSError:  # another process was faster
        shutil.rmtree(part)
    return folder


def prune(model: PreTrainedModel, ids: np.ndarray) -> None:
    """Keep only some tokens of the embedding and of the head, in place; exact on these.

    Args:
        model: With tied or separate embedding and head.
        ids: Of the tokens that stay; the model's new id of each is its place.
    """
    import torch  # noqa: PLC0415 - cells fork from a parent that has not imported it

    embedding: Any = model.get_input_embeddings()
    head: Any = model.get_output_embeddings()  # type: ignore[no-untyped-call]  # of the library
    kept = torch.from_numpy(ids)
    tied = head.weight is embedding.weight
    with torch.no_grad():
        embedding.weight = torch.nn.Parameter(embedding.weight[kept].clone())
        head.weight = embedding.weight if tied else torch.nn.Parameter(head.weight[kept].clone())
        if head.bias is not None:
            head.bias = torch.nn.Parameter(head.bias[kept].clone())
    embedding.num_embeddings = head.out_features = len(ids)
    embedding.padding_idx = None
    model.config.vocab_size = len(ids)
